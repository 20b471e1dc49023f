"""Who gets in and who may push, by the current directory."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from testing.e2e.command import run
from testing.e2e.people import DENIED, Person, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host


def test_bob_may_not_push_to_hgfleet_and_is_told_who_may(
    cluster: Cluster, bob: Person, tmp_path: Path
) -> None:
    before = cluster.remote_heads("hgfleet")
    work = bob.clone(bob.ssh_url("hgfleet"), tmp_path / "work")
    work.commit("bob-was-here.txt", uuid.uuid4().bytes, "try it")

    work.hg("push").refused("bob may not push to hgfleet: members of maintainers may")

    assert cluster.remote_heads("hgfleet") == before


def test_bob_is_told_so_also_when_he_pushes_quietly(bob: Person, tmp_path: Path) -> None:
    work = bob.clone(bob.ssh_url("e2e/push"), tmp_path / "work")
    work.commit("bob-was-here.txt", uuid.uuid4().bytes, "try it")

    work.hg("push", "--quiet", "--force").refused("bob may not push to e2e/push")


def test_bob_may_not_move_a_bookmark_either(
    cluster: Cluster, alice: Person, bob: Person, tmp_path: Path
) -> None:
    mine = alice.clone(alice.ssh_url("e2e/push"), tmp_path / "alice")
    mine.commit("bookmarked.txt", uuid.uuid4().bytes, "something to mark")
    mine.hg("push").ok()
    work = bob.clone(bob.ssh_url("e2e/push"), tmp_path / "work")
    work.hg("bookmark", "-r", "tip", "bobs").ok()

    work.hg("push", "-B", "bobs").refused("bob may not push to e2e/push")

    assert "bobs" not in cluster.get("e2e/push?cmd=listkeys&namespace=bookmarks").body


def test_bob_pushes_where_his_group_may(cluster: Cluster, bob: Person, tmp_path: Path) -> None:
    work = bob.clone(bob.ssh_url("e2e/shared"), tmp_path / "work")
    node = work.commit("bob.txt", uuid.uuid4().bytes, "by bob")

    work.hg("push").ok()

    assert node in cluster.remote_heads("e2e/shared")


def test_everybody_gets_told_their_name(alice: Person, bob: Person) -> None:
    assert "name:      alice" in alice.ssh("whoami").ok().stdout
    told = bob.ssh("whoami").ok().stdout
    assert "name:      bob" in told
    assert "hgfleet" not in told.partition("may push:")[2].splitlines()[0]


# --- keys that are refused --------------------------------------------------------------------


def refusals(host: Host, cursor: str, key: Path) -> list[str]:
    """Return the refusals of a key that the key lookup has logged since a place in the journal."""
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    identity = fingerprint(key)
    return [line for line in lines if "decision=deny" in line and identity in line]


def test_an_unknown_key_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "stranger"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]).ok()
    stranger = Person("stranger", key, cluster)
    host = cluster.first("ssh")
    cursor = host.journal_cursor()

    stranger.ssh("whoami").refused(DENIED)
    stranger.hg("clone", stranger.ssh_url("hgfleet"), str(tmp_path / "clone")).refused(DENIED)

    denied = refusals(host, cursor, key)
    assert denied
    assert all("reason=unknown" in line for line in denied), denied

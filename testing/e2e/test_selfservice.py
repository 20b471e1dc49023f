"""Repositories that people make for themselves over SSH: from `repo create` to the end.

The gate has the whole life of a repository, and who sees it. The promises of each command are
proven in testing/integration/selfservice, with the shell and a real hg.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import Result, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

HGFLEET: Final = "/opt/hgfleet/current/bin/hgfleet"
DYNAMIC: Final = "/var/lib/hgfleet/dynamic/registry.json"
QUOTA: Final = 5
"""The quota of the namespace `people` in the cluster's registry."""
HINT: Final = 'See "ssh hg@HOST repo list".'


@pytest.fixture
def host(cluster: Cluster) -> Host:
    return cluster.first("ssh")


@pytest.fixture
def path_for(host: Host) -> Iterator[Callable[[Person], str]]:
    """Give unused paths; repositories that a test makes there are deleted afterwards."""
    given: list[str] = []

    def path(person: Person) -> str:
        given.append(f"people/{person.name}/t{uuid.uuid4().hex[:12]}")
        return given[-1]

    yield path
    entries = registered(host)
    for made in given:
        if made in entries:
            purge_now(host, made)
    left = host.shell("cd /srv/hg/repos && find people -maxdepth 2 -name '.*' 2>/dev/null || true")
    assert left == "", f"remains of an unfinished creation: {left}"


def registered(host: Host) -> dict[str, dict[str, str | None]]:
    text = host.shell(f"cat {DYNAMIC} 2>/dev/null || echo '{{\"repositories\": {{}}}}'")
    entries: dict[str, dict[str, str | None]] = json.loads(text)["repositories"]
    return entries


def purge_now(host: Host, path: str) -> None:
    if registered(host)[path]["archived"] is None:
        host.run(HGFLEET, "repo", "archive", path).ok()
    host.run(HGFLEET, "repo", "purge", "--now", path, path).ok()


def missing(person: Person, path: str, tmp_path: Path) -> str:
    """The output of hg for a repository that does not exist for this person."""
    said = person.hg("clone", person.ssh_url(path), str(tmp_path / uuid.uuid4().hex))
    output = said.refused("There is no repository").output
    assert f"mean {path}?" not in output
    # By chance, either of the made-up names may resemble another repository more.
    return re.sub(
        r'Did you mean \S+\?|See "ssh [^"]* repo list"\.', HINT, output.replace(path, "PATH")
    )


def commit_and_push(person: Person, path: str, tmp_path: Path) -> str:
    work = person.clone(person.ssh_url(path), tmp_path / uuid.uuid4().hex)
    node = work.commit(f"{person.name}.txt", uuid.uuid4().bytes, f"by {person.name}")
    work.hg("push").ok()
    return node


def test_a_repository_from_its_creation_to_its_end(
    cluster: Cluster,
    host: Host,
    alice: Person,
    bob: Person,
    carol: Person,
    path_for: Callable[[Person], str],
    tmp_path: Path,
) -> None:
    path = path_for(bob)

    # Bob makes the repository; a moment later every user sees it.
    said = bob.ssh("repo", "create", path, "--description", "'Somewhere to try'").ok().stdout
    assert f"Created {path}." in said
    assert f"/{path}\n" in said
    assert f"{path} " in bob.ssh("repo list --mine").ok().stdout
    node = commit_and_push(bob, path, tmp_path)
    assert cluster.remote_heads(path) == {node}
    assert "Somewhere to try" in cluster.get("people/").body
    assert carol.clone(cluster.url(path), tmp_path / "https").heads() == {node}

    # Other users can read but not write: neither a member of a group, nor a maintainer.
    for other in (carol, alice):
        work = other.clone(other.ssh_url(path), tmp_path / f"of-{other.name}")
        work.commit("other.txt", b"other", "not mine")
        work.hg("push").refused(f"{other.name} may not push to {path}")
        other.ssh("repo", "archive", path).refused("belongs to bob")

    # Carol forks the repository, and the fork changes independently.
    fork = path_for(carol)
    carol.ssh("repo", "fork", path, fork).ok()
    forked = commit_and_push(carol, fork, tmp_path)
    assert cluster.remote_heads(fork) == {forked}
    assert cluster.remote_heads(path) == {node}
    assert f"forked from: {path}" in " ".join(carol.ssh("repo", "info", fork).ok().stdout.split())

    # The archived repository gives the same answers as a repository that never existed.
    bob.ssh("repo", "archive", path).ok()
    never = f"people/bob/u{uuid.uuid4().hex[:12]}"
    for person in (bob, carol):
        assert missing(person, path, tmp_path) == missing(person, never, tmp_path)
    for rest in ("", "/log", "?cmd=heads"):
        gone, absent = cluster.get(path + rest), cluster.get(never + rest)
        assert (gone.status, gone.body.replace(path, "PATH")) == (
            absent.status,
            absent.body.replace(never, "PATH"),
        )
    assert path not in cluster.get("people/").body
    assert path in bob.ssh("repo list --archived").ok().stdout
    assert path not in carol.ssh("repo list").ok().stdout
    assert cluster.remote_heads(fork) == {forked}

    # It can be restored with all its content.
    bob.ssh("repo", "restore", path).ok()
    assert cluster.remote_heads(path) == {node}

    # The fork outlives the source.
    purge_now(host, path)
    assert host.run("test", "-e", f"/srv/hg/repos/{path}").code == 1
    assert cluster.remote_heads(fork) == {forked}
    carol.clone(carol.ssh_url(fork), tmp_path / "fork").hg("verify").ok()


def test_a_private_one_is_its_owners_alone(
    cluster: Cluster,
    alice: Person,
    bob: Person,
    path_for: Callable[[Person], str],
    tmp_path: Path,
) -> None:
    path = path_for(bob)
    bob.ssh("repo", "create", path, "--read", "private").ok()
    commit_and_push(bob, path, tmp_path)

    never = f"people/bob/u{uuid.uuid4().hex[:12]}"
    assert missing(alice, path, tmp_path) == missing(alice, never, tmp_path)
    assert path not in alice.ssh("repo list").ok().stdout
    assert cluster.get(path).status == 404
    alice.ssh("repo", "info", path).refused(f"There is no repository '{path}'")
    copy = path_for(alice)
    alice.ssh("repo", "fork", path, copy).refused(f"There is no repository '{path}'")


@pytest.mark.whole
def test_a_fork_of_a_private_repository_stays_private(
    cluster: Cluster,
    alice: Person,
    bob: Person,
    path_for: Callable[[Person], str],
    tmp_path: Path,
) -> None:
    fork = path_for(alice)

    alice.ssh("repo", "fork", "e2e/private", fork, "--read", "public").refused("cannot be public")
    alice.ssh("repo", "fork", "e2e/private", fork).ok()

    assert missing(bob, fork, tmp_path) == missing(bob, "people/alice/never", tmp_path)
    assert cluster.get(fork).status == 404


@pytest.mark.whole
def test_the_quota_ends_it(host: Host, carol: Person, path_for: Callable[[Person], str]) -> None:
    used = sum(entry["owner"] == "carol" for entry in registered(host).values())
    for _ in range(QUOTA - used):
        carol.ssh("repo", "create", path_for(carol)).ok()

    carol.ssh("repo", "create", path_for(carol)).refused(f"the limit is {QUOTA}")
    assert f"({QUOTA} of {QUOTA} used)" in carol.ssh("whoami").ok().stdout


@pytest.mark.whole
def test_an_owner_deletes_an_archived_repository_for_good(
    host: Host, bob: Person, path_for: Callable[[Person], str], tmp_path: Path
) -> None:
    path = path_for(bob)
    bob.ssh("repo", "create", path).ok()
    commit_and_push(bob, path, tmp_path)
    bob.ssh("repo", "delete", path, path).refused("is in service")
    bob.ssh("repo", "archive", path).ok()

    bob.ssh("repo", "delete", path, f"{path}x").refused("name it twice")
    bob.ssh("repo", "delete", path, path).ok()

    assert path not in registered(host)
    assert host.run("test", "-e", f"/srv/hg/repos/{path}").code == 1
    bob.ssh("repo", "create", path).ok()


@pytest.mark.whole
def test_an_owner_renames_a_repository(
    cluster: Cluster,
    bob: Person,
    carol: Person,
    path_for: Callable[[Person], str],
    tmp_path: Path,
) -> None:
    old, new, never = path_for(bob), path_for(bob), f"people/bob/u{uuid.uuid4().hex[:12]}"
    bob.ssh("repo", "create", old, "--read", "private").ok()
    node = commit_and_push(bob, old, tmp_path)

    bob.ssh("repo", "rename", old, new).ok()

    assert bob.clone(bob.ssh_url(new), tmp_path / "new").heads() == {node}
    bob.hg("id", bob.ssh_url(old)).refused(f"{old} is now {new}")
    assert missing(carol, old, tmp_path) == missing(carol, never, tmp_path)
    assert cluster.get(old).status == 404


@pytest.mark.whole
def test_an_owner_keeps_drafts(
    bob: Person, path_for: Callable[[Person], str], tmp_path: Path
) -> None:
    path = path_for(bob)
    bob.ssh("repo", "create", path).ok()
    bob.ssh("repo", "drafts", path, "on").ok()

    work = bob.clone(bob.ssh_url(path), tmp_path / "work")
    work.commit("draft.txt", b"draft", "still a draft")
    work.hg("push").ok()

    assert work.hg("log", "-r", "tip", "-T", "{phase}").ok().stdout == "draft"


@pytest.mark.whole
def test_two_sessions_want_the_same_name(
    host: Host, alice: Person, path_for: Callable[[Person], str]
) -> None:
    path = path_for(alice)
    results: list[Result] = []

    def create() -> None:
        results.append(alice.ssh("repo", "create", path))

    both = [threading.Thread(target=create) for _ in range(2)]
    for session in both:
        session.start()
    for session in both:
        session.join()

    assert sorted(result.code == 0 for result in results) == [False, True], results
    assert registered(host)[path]["owner"] == "alice"
    alice.ssh("repo", "info", path).ok()


@pytest.mark.whole
def test_registry_apply_leaves_what_people_made_as_it_is(
    host: Host, bob: Person, path_for: Callable[[Person], str]
) -> None:
    path = path_for(bob)
    bob.ssh("repo", "create", path).ok()

    applied = host.run(HGFLEET, "registry", "apply").ok().stdout
    assert applied.splitlines()[-1] == "changed=0", applied
    assert path not in applied


@pytest.mark.whole
def test_operators_purge_what_has_waited_and_nothing_else(
    host: Host, bob: Person, path_for: Callable[[Person], str]
) -> None:
    old, young, live = (path_for(bob) for _ in range(3))
    for path in (old, young, live):
        bob.ssh("repo", "create", path).ok()
    for path in (old, young):
        bob.ssh("repo", "archive", path).ok()
    back_date(host, old, days=31)

    refused = host.run(HGFLEET, "repo", "purge", "--older-than", "1d")
    refused.refused("30d or more")
    host.run(HGFLEET, "repo", "purge", young).refused("for less than 30 days")
    host.run(HGFLEET, "repo", "purge", "--now", young, old).refused("name the repository twice")
    assert f"{old}: would be deleted" in host.run(HGFLEET, "repo", "purge", "--check").ok().stdout
    assert set(registered(host)) >= {old, young, live}
    host.run(HGFLEET, "repo", "purge").ok()

    assert old not in registered(host)
    assert host.run("test", "-e", f"/srv/hg/repos/{old}").code == 1
    assert set(registered(host)) >= {young, live}
    bob.ssh("repo", "restore", young).ok()
    # The name is free again.
    bob.ssh("repo", "create", old).ok()


def back_date(host: Host, path: str, days: int) -> None:
    """Set the time of a repository's archival to some days ago."""
    program = (
        "import json, sys, time; from dataclasses import replace\n"
        "from hgfleet.registry.dynamic import dynamic_update\n"
        "with dynamic_update.update() as entries:\n"
        "    stamp = time.gmtime(time.time() - 86400 * int(sys.argv[2]))\n"
        "    stamp = time.strftime('%Y-%m-%dT%H:%M:%SZ', stamp)\n"
        "    entries[sys.argv[1]] = replace(entries[sys.argv[1]], archived=stamp)\n"
    )
    python = "/opt/hgfleet/current/bin/python"
    host.run("runuser", "-u", "hg", "--", python, "-c", program, path, str(days)).ok()


@pytest.mark.whole
def test_an_operator_gives_a_repository_to_somebody_else(
    host: Host, bob: Person, carol: Person, path_for: Callable[[Person], str], tmp_path: Path
) -> None:
    path = path_for(bob)
    bob.ssh("repo", "create", path).ok()

    host.run(HGFLEET, "repo", "give", path, "carol").ok()

    commit_and_push(carol, path, tmp_path)
    work = bob.clone(bob.ssh_url(path), tmp_path / "bob")
    work.commit("bob.txt", b"x", "no longer mine")
    work.hg("push").refused(f"bob may not push to {path}")


def test_the_key_of_a_session_is_shown(cluster: Cluster) -> None:
    shown = {
        key: cluster.person("carol", key).ssh("keys").ok().stdout
        for key in ("carol", "carol-second")
    }

    assert "SHA256:" in shown["carol"]
    assert shown["carol"] != shown["carol-second"]


@pytest.mark.alone
def test_a_damaged_dynamic_registry_leaves_the_service_as_it_was(
    cluster: Cluster, host: Host, bob: Person
) -> None:
    keep = shlex.quote(f"{DYNAMIC}.of-a-test")
    host.shell(f"[ ! -e {DYNAMIC} ] || cp -p {DYNAMIC} {keep}; echo half > {DYNAMIC}")
    try:
        bob.hg("id", bob.ssh_url("hgfleet")).ok()
        wait_until("the web part serves", lambda: cluster.get("hgfleet").status == 200)
        bob.ssh("repo create people/bob/none").refused("This service is not in order")
    finally:
        host.shell(f"rm -f {DYNAMIC}; [ ! -e {keep} ] || mv {keep} {DYNAMIC}")

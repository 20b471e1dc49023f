"""The primary's registry goes back to a former state, or loses an entry: mirrors delete nothing."""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.e2e.command import run, wait_until
from testing.e2e.mirrors import SECONDS, mirrors_of, wait_for_use

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person
    from testing.faults.support import Faults

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

REGISTRY: Final = "/var/lib/hgfleet/dynamic/registry.json"


def state(host: Host) -> Any:
    """Return the state of replication on a host, even if there is a problem."""
    return json.loads(host.run("hgfleet", "replication", "status", "--json").stdout)


def told(host: Host, what: str, name: str) -> bool:
    """Whether a host reports a document that it refuses, or a folder that is set aside."""
    return name in state(host).get(what, {})


def follows(host: Host) -> bool:
    """Whether a mirror follows its primary in everything."""
    current = state(host)
    return not (current["refused"] or current["aside"])


def is_shown(cluster: Cluster, mirror: Host, path: str) -> bool:
    """Whether a mirror serves a public repository."""
    return cluster.get(cluster.url_past_proxy(mirror, path)).status == 200


def delete(person: Person, *paths: str) -> None:
    """Delete repositories for good, even after a test that failed half-way."""
    for path in paths:
        for command in (f"repo archive {path}", f"repo delete {path} {path}"):
            words = ["ssh", *person.ssh_options, *person.ssh_target, command]
            run(words, env=person.environment)


def test_mirrors_keep_what_an_older_registry_does_not_name(
    cluster: Cluster, bob: Person, faults: Faults
) -> None:
    primary, mirrors = cluster.first("ssh"), mirrors_of(cluster)
    former, later = (f"people/bob/t{uuid.uuid4().hex[:8]}" for _ in range(2))
    faults.stack.callback(delete, bob, former, later)
    bob.ssh(f"repo create --read public {former}").ok()
    older = primary.shell(f"cat {REGISTRY}")
    bob.ssh(f"repo create --read public {later}").ok()
    bob.ssh(f"repo describe {later} 'the newest version is two further'").ok()
    newest = primary.shell(f"cat {REGISTRY}")
    for mirror in mirrors:
        wait_until(f"{mirror.name} shows it", partial(is_shown, cluster, mirror, later), SECONDS)

    try:
        primary.write(REGISTRY, older)
        for mirror in mirrors:
            wait_until(
                f"{mirror.name} refuses it", partial(told, mirror, "refused", "registry"), SECONDS
            )
        # A mirror that restarts and connects again still refuses the registry.
        mirrors[0].systemctl("restart", "hgfleet-applier.service").ok()
        wait_for_use(cluster, mirrors[0])
        for mirror in mirrors:
            assert "is older" in state(mirror)["refused"]["registry"]
            assert is_shown(cluster, mirror, later)
        bob.ssh(f"repo describe {former} 'now'").refused("not in order", "nothing was changed")
        # The relay writes its state only from time to time.
        wait_until("the primary tells", partial(told, primary, "problems", "registry"), SECONDS)
        assert "hgfleet replication begin-term" in state(primary)["problems"]["registry"]
    finally:
        # If written later, `newest` would itself be an older registry.
        primary.write(REGISTRY, newest)
    for mirror in mirrors:
        wait_until(f"{mirror.name} follows again", partial(follows, mirror), SECONDS)
    bob.ssh(f"repo describe {former} 'possible again'").ok()


def test_an_entry_lost_by_hand_comes_back_by_one_command(
    cluster: Cluster, bob: Person, faults: Faults
) -> None:
    primary, mirrors = cluster.first("ssh"), mirrors_of(cluster)
    path = f"people/bob/t{uuid.uuid4().hex[:8]}"
    faults.stack.callback(delete, bob, path)
    bob.ssh(f"repo create --read public {path}").ok()
    registry = json.loads(primary.shell(f"cat {REGISTRY}"))
    identity = registry["repositories"].pop(path)["identity"]
    primary.write(REGISTRY, json.dumps(registry))
    for mirror in mirrors:
        wait_until(
            f"{mirror.name} sets it aside",
            partial(told, mirror, "aside", f"aside-{identity}"),
            SECONDS,
        )
        assert not is_shown(cluster, mirror, path)
        mirror.shell(f"test -d /srv/hg/repos/.replication/aside-{identity}/.hg")

    primary.run("hgfleet", "registry", "bring-back", path).ok()
    for mirror in mirrors:
        wait_until(f"{mirror.name} shows it", partial(is_shown, cluster, mirror, path), SECONDS)
        wait_until(f"{mirror.name} has it", partial(follows, mirror), SECONDS)

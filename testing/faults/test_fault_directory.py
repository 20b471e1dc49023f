"""Who gets in while the directory, or its replica on the SSH host, is away, hangs or is wrong."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import Result, run, wait_until
from testing.e2e.people import DENIED, Directory, Person, basic, fingerprint
from testing.faults.support import SECONDS_FOR_A_LOGIN, paused, pushes, stopped, unplugged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.faults.support import Fault, Faults

REPLICA: Final = "ldapi://"
PROVIDER: Final = "ldaps://"
UNIT: Final = "slapd.service"
CHECK: Final = "hgfleet-replica-check.service"
STALE: Final = "/run/hgfleet/directory-stale"
SECONDS_FOR_A_REFUSAL: Final = 15.0
"""Two servers that hang, asked for two questions, 2 s for each step (`ssh_directory_timeout`)."""


def lookups(host: Host, cursor: str, key: Path) -> list[dict[str, str]]:
    """Return the fields of each lookup of a key since."""
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    fields = [dict(w.split("=", 1) for w in shlex.split(line) if "=" in w) for line in lines]
    return [found for found in fields if found.get("fingerprint") == fingerprint(key)]


def sources(host: Host, cursor: str, person: Person) -> set[str]:
    """Return the servers that decided about a person's key since."""
    return {
        found["source"].partition("//")[0] + "//" for found in lookups(host, cursor, person.key)
    }


def refused_soon(person: Person) -> Result:
    """Return the answer of a login that is refused in bounded time."""
    said = person.ssh("whoami").refused(DENIED)
    assert said.seconds < SECONDS_FOR_A_REFUSAL, said
    return said


@pytest.fixture
def revoked(cluster: Cluster, carols_entry: Directory) -> Person:
    """Carol with her second key, which was taken from her a moment ago."""
    second = cluster.person("carol", key="carol-second")
    identity = fingerprint(second.key)
    carols_entry.change("delete", identity, carols_entry.keys()[identity])
    wait_until("the removed key is refused", lambda: second.ssh("whoami").refused(DENIED), 5)
    return second


@pytest.mark.parametrize("fault", [stopped, paused, unplugged])
def test_people_push_without_the_provider_and_who_was_thrown_out_stays_out(
    cluster: Cluster,
    alice: Person,
    revoked: Person,
    faults: Faults,
    fault: Fault,
    tmp_path: Path,
) -> None:
    host = cluster.first("ssh")
    faults.break_(fault, cluster.first("directory"))
    cursor = host.journal_cursor()

    node = pushes(alice, tmp_path / "work")
    said = alice.ssh("whoami").ok()
    refused_soon(revoked)

    assert node in cluster.remote_heads("e2e/push")
    assert said.seconds < SECONDS_FOR_A_LOGIN
    assert sources(host, cursor, alice) == {REPLICA}
    assert {found["reason"] for found in lookups(host, cursor, revoked.key)} == {"unknown"}


def test_nobody_is_alarmed_about_a_replica_whose_provider_is_away(
    cluster: Cluster, faults: Faults
) -> None:
    host = cluster.first("ssh")
    faults.break_(stopped, cluster.first("directory"))

    host.systemctl("start", CHECK).ok()

    assert "provider-unreachable" in host.run("hgfleet", "replica", "status").output
    assert host.run("test", "-e", STALE).code != 0


def test_without_the_provider_nobody_signs_in_and_what_is_public_is_served(
    cluster: Cluster, alice: Person, faults: Faults
) -> None:
    """A replica holds no password of a person."""
    private, who = "e2e/private?cmd=heads", basic("alice", alice.password)
    wait_until("alice reads it", lambda: cluster.get(private, headers=who).status == 200)
    faults.break_(stopped, cluster.first("directory"))

    # A password that was right a moment ago is not enough: whether she is enabled is asked anew.
    wait_until("alice is not let in", lambda: cluster.get(private, headers=who).status == 503)
    assert "public repositories are served" in cluster.get(private, headers=who).body
    assert cluster.get("hgfleet?cmd=heads").status == 200
    assert cluster.get(private).status == 401


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_the_provider_is_asked_when_the_replica_does_not_answer(
    cluster: Cluster, alice: Person, bob: Person, faults: Faults, how: str, tmp_path: Path
) -> None:
    host = cluster.first("ssh")
    if how == "stopped":
        faults.stop_unit(host, UNIT)
    else:
        faults.freeze_unit(host, UNIT)
    cursor = host.journal_cursor()

    assert pushes(alice, tmp_path / "work") in cluster.remote_heads("e2e/push")
    bob.ssh("whoami").ok()

    assert sources(host, cursor, alice) == {PROVIDER}
    assert sources(host, cursor, bob) == {PROVIDER}


@pytest.mark.parametrize("fault", [stopped, paused])
def test_without_any_directory_nobody_gets_in_but_administrators(
    cluster: Cluster, alice: Person, faults: Faults, fault: Fault
) -> None:
    host = cluster.first("ssh")
    faults.break_(fault, cluster.first("directory"))
    faults.freeze_unit(host, UNIT)
    cursor = host.journal_cursor()

    refused_soon(alice)

    found = lookups(host, cursor, alice.key)
    assert found
    assert {(one["decision"], one["reason"]) for one in found} == {("deny", "unavailable")}
    # Standing at the host's own door, with a key that is a file of root's.
    assert administrator(cluster).stdout.split() == ["breakglass", "root"]


def administrator(cluster: Cluster) -> Result:
    """Enter by the administrators' SSH and become root."""
    admin = cluster.person("admin")
    words = ["ssh", *admin.ssh_options, "-p", cluster.env["HGFLEET_ADMIN_SSH_PORT"]]
    words += [f"breakglass@{cluster.env['HGFLEET_SSH_HOST']}", "id -un; sudo -n id -un"]
    return run(words, env=admin.environment).ok()


@pytest.fixture
def replication(cluster: Cluster, faults: Faults) -> Callable[[], None]:
    """Give a function that takes the replica its password at the provider, until the end."""
    host = cluster.first("ssh")
    base = "olcDatabase={1}mdb,cn=config"
    ask = "ldapsearch -Q -LLL -o ldif-wrap=no -Y EXTERNAL -H ldapi:/// -s base"
    rule = (
        host.shell(f"{ask} -b '{base}' olcSyncrepl").partition("olcSyncrepl: ")[2].splitlines()[0]
    )

    def change(value: str) -> None:
        ldif = f"dn: {base}\nchangetype: modify\nreplace: olcSyncrepl\nolcSyncrepl: {value}\n"
        words = ["ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///"]
        host.run(*words, stdin=ldif).ok()

    def stop() -> None:
        faults.stack.callback(caught_up, host)
        faults.stack.callback(change, rule)
        change(re.sub(r'credentials=("[^"]*"|\S+)', 'credentials="wrong"', rule))

    return stop


def caught_up(host: Host) -> None:
    """Wait until the check says that the replica has everything, and trusts it again."""
    wait_until("the replica has caught up", lambda: host.systemctl("start", CHECK).ok(), 90)
    assert host.run("test", "-e", STALE).code != 0


def test_a_replica_that_stays_behind_raises_an_alarm_and_is_not_believed(
    cluster: Cluster,
    carol: Person,
    carols_entry: Directory,
    replication: Callable[[], None],
) -> None:
    host = cluster.first("ssh")
    second = cluster.person("carol", key="carol-second")
    identity = fingerprint(second.key)
    replication()
    carols_entry.change("delete", identity, carols_entry.keys()[identity])

    host.systemctl("start", CHECK).refused()
    assert host.systemctl("is-failed", CHECK).stdout.strip() == "failed"
    assert "lagging" in host.run("hgfleet", "replica", "status").output
    host.run("test", "-e", STALE).ok()

    cursor = host.journal_cursor()
    second.ssh("whoami").refused(DENIED)
    carol.ssh("whoami").ok()
    assert sources(host, cursor, carol) == {PROVIDER}
    assert {found["reason"] for found in lookups(host, cursor, second.key)} == {"unknown"}

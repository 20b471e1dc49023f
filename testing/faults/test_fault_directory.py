"""Who gets in while the directory, or its replica on the SSH host, is away, hangs or is wrong.

The gate unplugs the provider and freezes the replica, so that a lookup has to wait. Refused
connections are reported at once.
"""

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

WHOLE: Final = pytest.mark.whole
REPLICA: Final = "ldapi://"
PROVIDER: Final = "ldaps://"
UNIT: Final = "slapd.service"
CHECK: Final = "hgfleet-replica-check.service"
STALE: Final = "/run/hgfleet/directory-stale"
SECRET: Final = "/etc/hgfleet/secrets/replica-bind"
PROVIDER_UNREACHABLE: Final = 75
REFUSED: Final = 77
REPLICA_UNREACHABLE: Final = 69
"""Exit codes of the replica's check (hgfleet/directory/sync_check.py)."""
SECONDS_FOR_A_REFUSAL: Final = 15.0
"""Two lookups of two hanging servers, with 2 s for each step (`ssh_directory_timeout`)."""


def lookups(host: Host, cursor: str, key: Path) -> list[dict[str, str]]:
    """Return the fields of each lookup of a key since a place in the journal."""
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    fields = [dict(w.split("=", 1) for w in shlex.split(line) if "=" in w) for line in lines]
    return [lookup for lookup in fields if lookup.get("fingerprint") == fingerprint(key)]


def sources(host: Host, cursor: str, person: Person) -> set[str]:
    """Return the servers that decided about a person's key since a place in the journal."""
    return {
        lookup["source"].partition("//")[0] + "//" for lookup in lookups(host, cursor, person.key)
    }


def refused_soon(person: Person) -> Result:
    """Return the answer of a login, which must be refused in bounded time."""
    said = person.ssh("whoami").refused(DENIED)
    assert said.seconds < SECONDS_FOR_A_REFUSAL, said
    return said


@pytest.fixture
def revoked(cluster: Cluster, carols_entry: Directory) -> Person:
    """Carol with her second key, which was removed a moment ago."""
    second = cluster.person("carol", key="carol-second")
    identity = fingerprint(second.key)
    carols_entry.change("delete", identity, carols_entry.keys()[identity])
    wait_until("the removed key is refused", lambda: second.ssh("whoami").refused(DENIED), 5)
    return second


@pytest.mark.parametrize(
    "fault",
    [unplugged, pytest.param(stopped, marks=WHOLE), pytest.param(paused, marks=WHOLE)],
)
def test_people_push_without_the_provider_and_without_any_directory_only_administrators_get_in(
    cluster: Cluster,
    alice: Person,
    revoked: Person,
    faults: Faults,
    fault: Fault,
    tmp_path: Path,
) -> None:
    """First the provider's host is away, then the replica hangs too."""
    host = cluster.first("ssh")
    private, who = "e2e/private?cmd=heads", basic("alice", alice.password)
    wait_until("alice reads it", lambda: cluster.get(private, headers=who).status == 200)
    faults.break_(fault, cluster.first("directory"))

    assert_replica_decides(cluster, alice, revoked, tmp_path)
    assert_nobody_is_alarmed(host)
    # A replica has no passwords. A password that was right a moment ago is not enough, because the
    # directory is asked again whether she is enabled.
    wait_until("alice is not let in", lambda: cluster.get(private, headers=who).status == 503)
    assert "public repositories are served" in cluster.get(private, headers=who).body
    assert cluster.get("hgfleet?cmd=heads").status == 200
    assert cluster.get(private).status == 401

    faults.freeze_unit(host, UNIT)
    cursor = host.journal_cursor()
    refused_soon(alice)
    denied = lookups(host, cursor, alice.key)
    assert denied
    assert {(lookup["decision"], lookup["reason"]) for lookup in denied} == {
        ("deny", "unavailable")
    }
    # The administrators' sshd reads keys from a file of root's on the host itself.
    assert administrator(cluster).stdout.split() == ["breakglass", "root"]


def assert_replica_decides(cluster: Cluster, person: Person, revoked: Person, folder: Path) -> None:
    """Assert that a person pushes without delay, and that a revoked key is refused."""
    host = cluster.first("ssh")
    cursor = host.journal_cursor()
    node = pushes(person, folder / "work")
    said = person.ssh("whoami").ok()
    refused_soon(revoked)
    cluster.person("mallory").ssh("whoami").refused(DENIED)

    assert node in cluster.remote_heads("e2e/push")
    assert said.seconds < SECONDS_FOR_A_LOGIN
    assert sources(host, cursor, person) == {REPLICA}
    assert {lookup["reason"] for lookup in lookups(host, cursor, revoked.key)} == {"unknown"}


def assert_nobody_is_alarmed(host: Host) -> None:
    """Assert that the replica's check reports the provider, and no fault of its own host."""
    host.systemctl("start", CHECK).ok()
    status = host.run("hgfleet", "replica", "status")
    assert status.code == PROVIDER_UNREACHABLE
    assert "provider-unreachable" in status.output
    assert host.run("test", "-e", STALE).code != 0


@pytest.mark.parametrize("how", ["frozen", pytest.param("stopped", marks=WHOLE)])
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
    assert host.run("hgfleet", "replica", "status").code == REPLICA_UNREACHABLE


def administrator(cluster: Cluster) -> Result:
    """Enter by the administrators' SSH and become root."""
    admin = cluster.person("admin")
    words = ["ssh", *admin.ssh_options, "-p", cluster.env["HGFLEET_ADMIN_SSH_PORT"]]
    words += [f"breakglass@{cluster.env['HGFLEET_SSH_HOST']}", "id -un; sudo -n id -un"]
    return run(words, env=admin.environment).ok()


@pytest.fixture
def replication(cluster: Cluster, faults: Faults) -> Callable[[], None]:
    """Give a function that sets a wrong password in the replica, until the test ends."""
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
    """Wait until the check finds the replica complete, and trusts it again."""
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
    assert {lookup["reason"] for lookup in lookups(host, cursor, second.key)} == {"unknown"}


@pytest.mark.whole
def test_a_provider_that_refuses_the_replicas_account_raises_an_alarm(
    cluster: Cluster, faults: Faults
) -> None:
    host = cluster.first("ssh")
    faults.stack.callback(caught_up, host)
    faults.stack.callback(host.write, SECRET, host.shell(f"cat {SECRET}"))
    host.write(SECRET, "wrong\n")

    host.systemctl("start", CHECK).refused()

    shown = host.systemctl("show", "--value", "--property=ExecMainStatus", CHECK).ok()
    assert int(shown.stdout) == REFUSED
    status = host.run("hgfleet", "replica", "status")
    assert status.code == REFUSED
    assert "refused" in status.output
    host.run("test", "-e", STALE).ok()


@pytest.mark.whole
@pytest.mark.disruptive
def test_a_replica_with_changes_that_a_restored_provider_does_not_have_raises_an_alarm(
    cluster: Cluster, carols_entry: Directory, faults: Faults
) -> None:
    """The provider is restored from a backup; then replicas fetch all, as the runbook says."""
    host, provider = cluster.first("ssh"), cluster.first("directory")
    second = cluster.person("carol", key="carol-second")
    provider.shell("slapcat -n 1 > /root/before.ldif")
    faults.stack.callback(provider.run, "rm", "-f", "/root/before.ldif")
    identity = fingerprint(second.key)
    carols_entry.change("delete", identity, carols_entry.keys()[identity])
    wait_until("the replica has the change", lambda: second.ssh("whoami").refused(DENIED), 5)
    for replica in cluster.all("ssh"):
        faults.stack.callback(made_anew, replica)
    faults.stack.callback(provider.systemctl, "start", UNIT)
    stop_and_empty(provider)
    provider.shell("runuser -u openldap -- slapadd -n 1 < /root/before.ldif")
    provider.systemctl("start", UNIT).ok()

    host.systemctl("start", CHECK).refused()
    assert "ahead: " in host.run("hgfleet", "replica", "status").output
    host.run("test", "-e", STALE).ok()
    made_anew(host)
    assert "in-sync: " in host.run("hgfleet", "replica", "status").output


def stop_and_empty(host: Host) -> None:
    """Stop a server of the directory, and remove its entries."""
    host.systemctl("stop", UNIT).ok()
    host.run("rm", "-f", "/var/lib/ldap/data.mdb", "/var/lib/ldap/lock.mdb").ok()


def made_anew(host: Host) -> None:
    """Have a replica fetch all entries, and wait until its check succeeds."""
    stop_and_empty(host)
    host.systemctl("start", UNIT).ok()
    caught_up(host)

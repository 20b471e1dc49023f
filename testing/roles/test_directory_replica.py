"""The promises of the role directory on a host with a replica: an ssh host besides the provider."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from testing.roles.ldap import DATABASE, search

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

CHECK = "hgfleet-replica-check.service"
TIMER = "hgfleet-replica-check.timer"
STALE = "/run/hgfleet/directory-stale"


@pytest.fixture
def suffix(host: Host) -> str:
    (entry,) = search(host, DATABASE, "base", "(objectClass=*)", "olcSuffix")
    return entry["olcSuffix"][0]


@pytest.fixture
def everything(host: Host, suffix: str) -> list[dict[str, list[str]]]:
    return search(host, suffix, "sub", "(objectClass=*)", "'*'", "+")


def shown(host: Host, unit: str, name: str) -> str:
    return str(host.check_output("systemctl show --value --property %s %s", name, unit)).strip()


# --- the server -----------------------------------------------------------------------------


def test_slapd_runs_without_root_and_starts_with_the_host(host: Host) -> None:
    assert host.service("slapd").is_running
    assert host.service("slapd").is_enabled
    pid = shown(host, "slapd.service", "MainPID")
    assert host.check_output("stat --format %%U /proc/%s", pid) == "openldap"
    assert shown(host, "slapd.service", "MemoryMax").isdigit()


def test_it_listens_on_its_socket_only(host: Host) -> None:
    sockets = host.check_output("ss --listening --tcp --udp --numeric --processes --no-header")
    assert "slapd" not in sockets
    assert host.file("/run/slapd/ldapi").is_socket


def test_only_those_who_have_to_ask_reach_the_socket(host: Host) -> None:
    folder = host.file("/run/slapd")
    assert (folder.user, folder.group, folder.mode) == ("openldap", "hgdirectory", 0o750)
    tried = host.run("runuser -u nobody -- ldapwhoami -Q -Y EXTERNAL -H ldapi:///")
    assert tried.rc != 0
    assert "Can't contact LDAP server" in tried.stderr
    assert host.run("runuser -u hgkeys -- test -x /run/slapd").rc == 0


def test_it_follows_over_verified_tls(host: Host) -> None:
    (entry,) = search(host, DATABASE, "base", "(objectClass=*)", "olcSyncrepl", "olcReadOnly")
    source = entry["olcSyncrepl"][0]
    for words in (
        "provider=ldaps://",
        "type=refreshAndPersist",
        "tls_reqcert=demand",
        'retry="1 60 5 +"',
    ):
        assert words in source
    assert entry["olcReadOnly"] == ["TRUE"]


@pytest.mark.changes
def test_nobody_writes_not_even_root(host: Host, suffix: str) -> None:
    ldif = f"dn: {suffix}\nchangetype: modify\nreplace: description\ndescription: x\n"
    tried = host.run("printf %%s %s | ldapmodify -Q -Y EXTERNAL -H ldapi:///", ldif)
    assert tried.rc != 0


@pytest.mark.parametrize("path", ["/etc/ldap/slapd.d/cn=config", "/var/lib/ldap/data.mdb"])
def test_files_are_closed_to_others(host: Host, path: str) -> None:
    assert host.run("runuser -u nobody -- cat %s", path).rc != 0
    assert host.run("runuser -u hgkeys -- cat %s", path).rc != 0
    assert host.file(path).user == "openldap"


# --- what it has ----------------------------------------------------------------------------


def test_people_are_here_with_what_a_lookup_needs_and_no_more(
    everything: list[dict[str, list[str]]],
) -> None:
    people = [entry for entry in everything if "inetOrgPerson" in entry["objectClass"]]
    assert people
    for person in people:
        assert not {"cn", "sn", "mail", "userPassword", "description"} & set(person), person["uid"]
        assert len(person.get("sshPublicKey", ())) == len(person.get("sshPublicKeyId", ()))


def test_the_only_password_is_the_hash_of_the_lookups(
    everything: list[dict[str, list[str]]],
) -> None:
    (entry,) = [entry for entry in everything if "userPassword" in entry]
    assert entry["cn"] == ["keys"]
    assert entry["userPassword"][0].startswith("{")


def test_a_user_of_the_socket_sees_which_entries_it_has_how_new_they_are_and_nothing_else(
    host: Host, suffix: str, everything: list[dict[str, list[str]]]
) -> None:
    asked = "runuser -u hgreplica -- ldapsearch -Q -LLL -Y EXTERNAL -H ldapi:/// -b %s"
    seen = host.check_output(asked + " contextCSN", suffix)
    assert re.search(r"^contextCSN: \d{14}", seen, re.MULTILINE)
    shown = host.check_output(asked + " '(entryUUID=*)' '*' +", suffix)
    assert shown.count("dn: ") == len(everything)
    names = set(re.findall(r"^(\w+):", shown, re.MULTILINE))
    assert names <= {"dn", "entryUUID", "entryCSN", "objectClass", "contextCSN"}


def test_the_configuration_is_roots(host: Host) -> None:
    tried = host.run(
        "runuser -u hgreplica -- ldapsearch -Q -LLL -Y EXTERNAL -H ldapi:/// -b cn=config"
    )
    assert tried.stdout == ""


# --- the check ------------------------------------------------------------------------------


def test_it_has_what_the_provider_has(host: Host) -> None:
    told = host.run("hgfleet replica status")
    assert told.rc == 0, told.stdout + told.stderr
    assert told.stdout.startswith("in-sync: ")
    assert "ask" not in told.stdout


def test_the_check_runs_by_itself_and_is_content(host: Host, wait_for: WaitFor) -> None:
    assert host.service(TIMER).is_running
    assert host.service(TIMER).is_enabled
    before = shown(host, CHECK, "InvocationID")

    def ran_again() -> bool:
        return (
            shown(host, CHECK, "InvocationID") != before
            and shown(host, CHECK, "ActiveState") == "inactive"
        )

    wait_for("the timer starts the check", ran_again, seconds=60)
    journal = host.run(f"journalctl -u {CHECK} -n 20 --no-pager").stdout
    assert shown(host, CHECK, "Result") == "success", journal
    assert not host.file(STALE).exists


def test_the_check_is_sandboxed_and_may_do_little(host: Host) -> None:
    assert shown(host, CHECK, "User") == "hgreplica"
    for unit in (CHECK, "slapd.service"):
        report = host.check_output("systemd-analyze security --no-pager %s", unit)
        exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
        assert exposure
        assert float(exposure[1]) <= 2.0, report
    folder = host.file("/run/hgfleet")
    assert (folder.user, folder.mode) == ("hgreplica", 0o755)


def test_the_replicas_password_is_roots_alone(host: Host) -> None:
    secret = host.file("/etc/hgfleet/secrets/replica-bind")
    assert (secret.user, secret.group, secret.mode) == ("root", "root", 0o600)
    for user in ("hgreplica", "hgkeys", "nobody"):
        assert host.run("runuser -u %s -- cat %s", user, secret.path).rc != 0
    done = host.run(
        f"grep -r -l -F -f {secret.path} --exclude-dir secrets /etc/hgfleet /etc/systemd;"
        f" journalctl --quiet --no-pager | grep -F -f {secret.path}"
    )
    assert done.stdout == ""
    assert secret.content_string.strip() not in host.check_output("ps -eo args")


@pytest.mark.disruptive
def test_a_stopped_replica_is_an_alarm_and_lookups_go_to_the_provider(
    host: Host, wait_for: WaitFor
) -> None:
    assert host.run("systemctl stop slapd.service").rc == 0
    try:
        assert host.run(f"systemctl start {CHECK}").rc != 0
        assert shown(host, CHECK, "ActiveState") == "failed"
        assert shown(host, CHECK, "ExecMainStatus") == "69"
        assert host.file(STALE).exists
    finally:
        assert host.run("systemctl start slapd.service").rc == 0
    wait_for("the check takes it back", lambda: host.run(f"systemctl start {CHECK}").rc == 0)
    assert not host.file(STALE).exists


@pytest.mark.disruptive
def test_a_replica_that_lost_its_database_fills_itself(
    host: Host, everything: list[dict[str, list[str]]], suffix: str, wait_for: WaitFor
) -> None:
    """The last resort of the runbook."""
    assert host.run("systemctl stop slapd.service && rm /var/lib/ldap/*.mdb").rc == 0
    assert host.run("systemctl start slapd.service").rc == 0
    wait_for("the replica is full", lambda: host.run("hgfleet replica status").rc == 0)
    assert len(search(host, suffix, "sub", "(objectClass=*)", "dn")) == len(everything)
    wait_for("the check is content", lambda: host.run(f"systemctl start {CHECK}").rc == 0)

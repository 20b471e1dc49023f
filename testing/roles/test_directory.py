"""The promises of the role directory, on any host with the directory."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING

import pytest

from hgfleet.directory import publickey
from testing.roles.ldap import DATABASE, change, search

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.host import Host

    from testing.conftest import WaitFor


@pytest.fixture
def suffix(host: Host) -> str:
    (entry,) = search(host, DATABASE, "base", "(objectClass=*)", "olcSuffix")
    return entry["olcSuffix"][0]


@pytest.fixture
def people(host: Host, suffix: str) -> list[dict[str, list[str]]]:
    return search(
        host,
        f"ou=people,{suffix}",
        "one",
        "(objectClass=ldapPublicKey)",
        "uid",
        "sshPublicKey",
        "sshPublicKeyId",
        "pwdAccountLockedTime",
    )


def test_slapd_runs_confined_and_without_root(host: Host) -> None:
    assert host.service("slapd").is_running
    assert host.service("slapd").is_enabled
    pid = host.check_output("systemctl show --property MainPID --value slapd.service")
    assert host.check_output("stat --format %%U /proc/%s", pid) == "openldap"
    shown = host.check_output("systemd-analyze security --no-pager slapd.service").splitlines()[-1]
    exposure = re.search(r"slapd\.service: ([0-9.]+)", shown)
    assert exposure is not None, shown
    assert float(exposure[1]) <= 2.0, shown


def test_it_listens_on_tls_and_on_its_socket_only(host: Host) -> None:
    sockets = host.check_output("ss --listening --tcp --numeric --no-header")
    ports = {int(line.split()[3].rpartition(":")[2]) for line in sockets.splitlines()}
    assert 636 in ports
    assert 389 not in ports
    assert host.file("/run/slapd/ldapi").is_socket


def test_only_those_who_have_to_ask_reach_the_socket(host: Host) -> None:
    folder = host.file("/run/slapd")
    assert (folder.user, folder.group, folder.mode) == ("openldap", "hgdirectory", 0o750)
    tried = host.run("runuser -u nobody -- ldapwhoami -Q -Y EXTERNAL -H ldapi:///")
    assert tried.rc != 0
    assert "Can't contact LDAP server" in tried.stderr


def test_replicas_are_told_what_changes(host: Host, suffix: str) -> None:
    (overlay,) = search(host, DATABASE, "one", "(objectClass=olcSyncProvConfig)", "olcSpSessionlog")
    assert int(overlay["olcSpSessionlog"][0]) > 0
    (top,) = search(host, suffix, "base", "(objectClass=*)", "contextCSN")
    assert re.fullmatch(r"\d{14}\.\d{6}Z#[0-9a-f]{6}#[0-9a-f]{3}#0{6}", top["contextCSN"][0])


def test_root_and_replicas_see_everybody_however_many_they_are(host: Host) -> None:
    (entry,) = search(host, DATABASE, "base", "(objectClass=*)", "olcLimits")
    for who in ("cn=peercred,cn=external,cn=auth", "cn=replica,ou=services,"):
        (limit,) = [value for value in entry["olcLimits"] if who in value]
        assert "size=unlimited" in limit


def test_tls_shows_the_certificate_of_the_host(host: Host) -> None:
    name = host.check_output("hostname")
    shown = host.run(
        "openssl s_client -connect localhost:636 -CAfile /etc/hgfleet/tls/ca.pem"
        " -verify_return_error -verify_hostname %s </dev/null",
        name,
    )
    assert shown.rc == 0, shown.stderr
    assert "Verify return code: 0 (ok)" in shown.stdout


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_tls_is_refused(host: Host, version: str) -> None:
    tried = host.run(
        f"openssl s_client -connect localhost:636 {version} -cipher DEFAULT@SECLEVEL=0 </dev/null"
    )
    assert tried.rc != 0


@pytest.mark.parametrize("uri", ["ldapi:///", "ldaps://localhost"])
@pytest.mark.parametrize("base", ["people", "groups", "services", "top", "root", "schema"])
def test_anonymous_reads_nothing(host: Host, suffix: str, uri: str, base: str) -> None:
    bases = {"top": suffix, "root": "", "schema": "cn=Subschema"}
    tried = host.run(
        "LDAPTLS_CACERT=/etc/hgfleet/tls/ca.pem ldapsearch -x -LLL -H %s -b %s -s base",
        uri,
        bases.get(base, f"ou={base},{suffix}"),
    )
    assert tried.rc != 0
    assert tried.stdout == ""


def test_nobody_else_on_this_host_administers_it(host: Host, suffix: str) -> None:
    tried = host.run(
        "runuser -u nobody -- ldapsearch -Q -LLL -Y EXTERNAL -H ldapi:/// -b %s", suffix
    )
    assert tried.stdout == ""
    tried = host.run(
        "runuser -u nobody -- ldapsearch -Q -LLL -Y EXTERNAL -H ldapi:/// -b cn=config"
    )
    assert tried.stdout == ""


def test_there_is_no_password_of_an_administrator(host: Host) -> None:
    assert search(host, "cn=config", "sub", "(olcRootPW=*)", "olcRootPW") == []


@pytest.mark.parametrize("path", ["/etc/ldap/slapd.d/cn=config", "/var/lib/ldap/data.mdb"])
def test_files_are_closed_to_others(host: Host, path: str) -> None:
    assert host.run("runuser -u nobody -- cat %s", path).rc != 0
    assert host.file(path).user == "openldap"


def test_every_key_has_its_fingerprint_beside_it(people: list[dict[str, list[str]]]) -> None:
    for person in people:
        computed = {publickey.parse(key).fingerprint for key in person.get("sshPublicKey", [])}
        assert computed == set(person.get("sshPublicKeyId", [])), person["uid"]


def test_no_key_belongs_to_two_people(people: list[dict[str, list[str]]]) -> None:
    every = [identity for person in people for identity in person.get("sshPublicKeyId", [])]
    assert len(every) == len(set(every))


def test_fingerprints_and_members_are_found_by_an_index(host: Host) -> None:
    (entry,) = search(host, DATABASE, "base", "(objectClass=*)", "olcDbIndex")
    assert {"sshPublicKeyId eq", "member eq", "objectClass eq"} <= set(entry["olcDbIndex"])


def test_fingerprints_are_compared_in_exact_case(
    host: Host, people: list[dict[str, list[str]]], suffix: str
) -> None:
    for person in people[:3]:
        for identity in person.get("sshPublicKeyId", []):
            other = identity.swapcase().replace("sha256:", "SHA256:")
            assert (
                search(host, f"ou=people,{suffix}", "one", f"(sshPublicKeyId={other})", "uid") == []
            )


def test_disabled_people_are_locked_by_the_policy(host: Host) -> None:
    (overlay,) = search(
        host, DATABASE, "one", "(objectClass=olcPPolicyConfig)", "olcPPolicyDefault"
    )
    (policy,) = search(
        host, overlay["olcPPolicyDefault"][0], "base", "(objectClass=pwdPolicy)", "pwdLockout"
    )
    assert policy["pwdLockout"] == ["TRUE"]


@pytest.fixture
def disabled(host: Host, suffix: str) -> Iterator[str]:
    """The DN of a disabled person, who exists for a single test."""
    dn = f"uid=role-test,ou=people,{suffix}"
    change(
        host,
        f"dn: {dn}\nchangetype: add\nobjectClass: inetOrgPerson\nobjectClass: ldapPublicKey\n"
        "uid: role-test\ncn: Test\nsn: Test\npwdAccountLockedTime: 000001010000Z\n",
    )
    yield dn
    change(host, f"dn: {dn}\nchangetype: delete\n")


def is_disabled(host: Host, dn: str) -> bool:
    (person,) = search(host, dn, "base", "(objectClass=*)", "pwdAccountLockedTime")
    return person.get("pwdAccountLockedTime") == ["000001010000Z"]


@pytest.mark.disruptive
def test_a_change_of_keys_or_names_keeps_a_disabled_person_disabled(
    host: Host, disabled: str
) -> None:
    """Changes each attribute of a person that the role writes."""
    for attribute in ("cn", "sn", "mail", "sshPublicKey", "sshPublicKeyId"):
        change(host, f"dn: {disabled}\nchangetype: modify\nreplace: {attribute}\n{attribute}: x\n")
        assert is_disabled(host, disabled), attribute


@pytest.mark.disruptive
def test_a_new_password_unlocks_unless_the_lock_is_written_around_it(
    host: Host, disabled: str
) -> None:
    """A trap of slapo-ppolicy; docs/runbooks/slapd.md says how to avoid it."""
    begin = f"dn: {disabled}\nchangetype: modify\n"
    password = "replace: userPassword\nuserPassword: secret\n"
    lock = "pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z\n"
    change(host, f"{begin}{password}-\nreplace: {lock}")
    assert not is_disabled(host, disabled), "the trap is gone: the runbook may be simpler"
    change(host, f"{begin}replace: {lock}")
    assert is_disabled(host, disabled)
    change(host, f"{begin}delete: pwdAccountLockedTime\n-\n{password}-\nadd: {lock}")
    assert is_disabled(host, disabled)


@pytest.mark.disruptive
def test_a_disabled_person_with_an_old_connection_cannot_unlock_themself(
    host: Host, disabled: str
) -> None:
    asked = "runuser -u openldap -- slapacl -F /etc/ldap/slapd.d -D %s -b %s userPassword/write"
    told = host.run(asked, disabled, disabled)
    assert told.stderr.rstrip().endswith("DENIED"), told.stderr
    change(host, f"dn: {disabled}\nchangetype: modify\ndelete: pwdAccountLockedTime\n")
    told = host.run(asked, disabled, disabled)
    assert told.stderr.rstrip().endswith("ALLOWED"), told.stderr


ANYBODY = "uid=anybody,ou=people,{suffix}"
KEYS = "cn=keys,ou=services,{suffix}"
WEB = "cn=web,ou=services,{suffix}"
REPLICA = "cn=replica,ou=services,{suffix}"
RULES = {
    "the lookup reads keys": (KEYS, ANYBODY, "sshPublicKey/read", True),
    "the lookup finds fingerprints": (KEYS, ANYBODY, "sshPublicKeyId/search", True),
    "the lookup sees who is disabled": (KEYS, ANYBODY, "pwdAccountLockedTime/read", True),
    "the lookup tells people of one name apart": (KEYS, ANYBODY, "entryUUID/read", True),
    "the lookup reads members": (KEYS, "cn=g,ou=groups,{suffix}", "member/read", True),
    "the lookup reads no mail address": (KEYS, ANYBODY, "mail/read", False),
    "the lookup reads no password": (KEYS, ANYBODY, "userPassword/read", False),
    "the lookup changes no key": (KEYS, ANYBODY, "sshPublicKey/write", False),
    "the lookup adds nobody": (KEYS, "ou=people,{suffix}", "children/write", False),
    "the lookup changes no group": (KEYS, "cn=g,ou=groups,{suffix}", "member/write", False),
    "the lookup changes no password": (KEYS, KEYS, "userPassword/write", False),
    "sign-in finds people": (WEB, ANYBODY, "uid/search", True),
    "sign-in sees who is disabled": (WEB, ANYBODY, "pwdAccountLockedTime/read", True),
    "sign-in tells people of one name apart": (WEB, ANYBODY, "entryUUID/read", True),
    "sign-in reads members": (WEB, "cn=g,ou=groups,{suffix}", "member/search", True),
    "sign-in reads no password": (WEB, ANYBODY, "userPassword/read", False),
    "sign-in reads no keys": (WEB, ANYBODY, "sshPublicKey/read", False),
    "sign-in reads no mail address": (WEB, ANYBODY, "mail/read", False),
    "a replica copies keys": (REPLICA, ANYBODY, "sshPublicKey/read", True),
    "a replica copies who is disabled": (REPLICA, ANYBODY, "pwdAccountLockedTime/read", True),
    "a replica copies who is who": (REPLICA, ANYBODY, "entryUUID/read", True),
    "a replica knows what is new": (REPLICA, "{suffix}", "contextCSN/read", True),
    "a replica copies the lookup's account": (REPLICA, KEYS, "userPassword/read", True),
    "a replica copies no other account": (REPLICA, WEB, "entry/read", False),
    "a replica copies no password of people": (REPLICA, ANYBODY, "userPassword/read", False),
    "a replica copies no mail address": (REPLICA, ANYBODY, "mail/read", False),
    "a replica changes nobody": (REPLICA, ANYBODY, "pwdAccountLockedTime/write", False),
    "a person reads the own keys": (ANYBODY, ANYBODY, "sshPublicKey/read", True),
    "a person does not change them": (ANYBODY, ANYBODY, "sshPublicKey/write", False),
    "a person does not enable themself": (ANYBODY, ANYBODY, "pwdAccountLockedTime/write", False),
    "a person joins no group": (ANYBODY, "cn=g,ou=groups,{suffix}", "member/write", False),
    "a person reads no other": (ANYBODY, "uid=other,ou=people,{suffix}", "uid/read", False),
    "a person reads no own password": (ANYBODY, ANYBODY, "userPassword/read", False),
    "a person changes the own password": (ANYBODY, ANYBODY, "userPassword/write", True),
}


def test_passwords_are_compared_for_clients_of_the_inventory_alone(host: Host, suffix: str) -> None:
    asked = (
        "runuser -u openldap -- slapacl -F /etc/ldap/slapd.d -u -o peername=%s -b %s"
        " userPassword/auth"
    )
    address = host.check_output("hostname --ip-address").split()[0]
    clients = {
        f"IP={address}:1024": "ALLOWED",
        "IP=127.0.0.1:1024": "ALLOWED",
        "PATH=/run/slapd/ldapi": "ALLOWED",
        "IP=203.0.113.9:1024": "DENIED",
        "IP=[2001:db8::9]:1024": "DENIED",
    }
    for peer, answer in clients.items():
        for entry in (ANYBODY, KEYS, WEB):
            told = host.run(asked, peer, entry.format(suffix=suffix))
            assert told.stderr.rstrip().endswith(answer), (peer, entry, told.stderr)


def test_packets_of_others_are_refused_where_the_kernel_can(host: Host) -> None:
    shown = host.check_output("systemctl show slapd.service -p IPAddressDeny -p IPAddressAllow")
    assert "IPAddressDeny=::/0 0.0.0.0/0" in shown or "IPAddressDeny=0.0.0.0/0 ::/0" in shown
    assert "127.0.0.0/8" in shown


@pytest.fixture
def chooser(host: Host, suffix: str) -> Iterator[tuple[str, str]]:
    """The DN and password of a person who exists for a single test."""
    dn, password = f"uid=role-chooser,ou=people,{suffix}", "correct-horse-battery"
    change(
        host,
        f"dn: {dn}\nchangetype: add\nobjectClass: inetOrgPerson\nuid: role-chooser\ncn: Test\n"
        f"sn: Test\nuserPassword: {password}\n",
    )
    yield dn, password
    change(host, f"dn: {dn}\nchangetype: delete\n")


LDAP = "LDAPTLS_CACERT=/etc/hgfleet/tls/ca.pem {command} -x -H ldaps://localhost -D %s -w %s"


@pytest.mark.disruptive
def test_people_choose_long_passwords_and_need_the_old_one(
    host: Host, chooser: tuple[str, str]
) -> None:
    dn, old = chooser
    new = "another-horse-battery"
    passwd = LDAP.format(command="ldappasswd")
    without = host.run(f"{passwd} -s %s", dn, old, new)
    assert without.rc != 0
    assert "Must supply old password" in without.stdout + without.stderr
    short = host.run(f"{passwd} -a %s -s a", dn, old, old)
    assert short.rc != 0
    assert "Password fails quality checking policy" in short.stdout + short.stderr
    assert host.run(f"{passwd} -a %s -s %s", dn, old, old, new).rc == 0
    assert host.run(LDAP.format(command="ldapwhoami"), dn, new).rc == 0
    (entry,) = search(host, dn, "base", "(objectClass=*)", "userPassword")
    assert entry["userPassword"][0].startswith("{ARGON2}")


@pytest.mark.disruptive
def test_a_hash_from_before_argon2_is_still_right(host: Host, chooser: tuple[str, str]) -> None:
    dn, _ = chooser
    old = host.check_output("slappasswd -h {SSHA} -s a-password-of-before")
    change(host, f"dn: {dn}\nchangetype: modify\nreplace: userPassword\nuserPassword: {old}\n")
    whoami = LDAP.format(command="ldapwhoami")
    assert host.run(whoami, dn, "a-password-of-before").rc == 0


def test_a_name_that_was_searched_is_in_no_log(host: Host, suffix: str, wait_for: WaitFor) -> None:
    """People sometimes type their password in the place of the name."""
    name = f"typed-{uuid.uuid4()}"
    search(host, suffix, "sub", f"(uid={name})", "uid")
    dn = f"uid=role-{uuid.uuid4().hex},ou=people,{suffix}"
    assert host.run(LDAP.format(command="ldapwhoami"), dn, "wrong").rc == 49
    said = "journalctl --unit slapd.service --output cat --since -5min"
    wait_for("the bind is in the log", lambda: f'BIND dn="{dn}"' in host.check_output(said))
    assert f"(uid={name})" not in host.check_output(said)


def test_a_wrong_password_is_in_the_log(host: Host, suffix: str, wait_for: WaitFor) -> None:
    dn = f"uid=role-{uuid.uuid4().hex},ou=people,{suffix}"
    tried = host.run(LDAP.format(command="ldapwhoami"), dn, "wrong")
    assert tried.rc == 49, tried.stderr
    journal = "journalctl --unit slapd.service --output cat --since -5min"
    wait_for("the bind is in the log", lambda: f'BIND dn="{dn}"' in host.check_output(journal))
    wait_for("its result is in the log", lambda: "err=49" in host.check_output(journal))


@pytest.mark.parametrize(("who", "entry", "what", "allowed"), RULES.values(), ids=RULES)
def test_access_rules(
    host: Host, suffix: str, who: str, entry: str, what: str, allowed: bool
) -> None:
    told = host.run(
        "runuser -u openldap -- slapacl -F /etc/ldap/slapd.d -u -D %s -b %s %s",
        who.format(suffix=suffix),
        entry.format(suffix=suffix),
        what,
    )
    assert told.rc == 0, told.stderr
    assert told.stderr.rstrip().endswith("ALLOWED" if allowed else "DENIED"), told.stderr


def test_the_suite_of_access_checks_finds_what_is_wrong(host: Host, suffix: str) -> None:
    keys, anybody = KEYS.format(suffix=suffix), ANYBODY.format(suffix=suffix)
    check = {"who": keys, "entry": anybody, "allowed": ["uid/read"], "denied": ["mail/read"]}
    asked = "printf %%s %s | hgfleet directory access"
    right = host.run(asked, json.dumps([check]))
    assert (right.rc, right.stdout) == (0, "2 answers as expected\n"), right.stderr
    wrong = host.run(asked, json.dumps([check | {"denied": ["uid/search"]}]))
    assert wrong.rc == 1
    assert f"{keys} may uid/search of {anybody}; expected: may not" in wrong.stderr

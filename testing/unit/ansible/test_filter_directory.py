"""The filters of the role `directory`: the inventory as LDAP entries, and the differences."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from hgfleet.directory import publickey
from hgfleet.directory.filters import DISABLED
from hgfleet.directory.people import MIN_PASSWORD
from testing.support import loading

directory = loading.module("ansible/plugins/filter/directory.py")

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
SUFFIX = "dc=x"


def test_every_filter_is_offered_by_its_name() -> None:
    for name, function in directory.FilterModule().filters().items():
        assert function is getattr(directory, name)


def test_it_knows_the_types_and_the_mark_that_the_lookup_knows() -> None:
    assert directory.KEY_TYPES == publickey.KEY_TYPES
    assert directory.DISABLED == DISABLED


@pytest.mark.parametrize("line", [KEY, f"{KEY} alice@laptop", f"{KEY} alice\n", f"  {KEY}  "])
def test_fingerprint_is_the_one_that_the_lookup_computes(line: str) -> None:
    assert directory.ssh_key_fingerprint(line) == publickey.parse(KEY).fingerprint


BAD_KEYS = {
    "nothing": ("", "several lines"),
    "a number": (7, "expected a public key"),
    "two lines": (f"{KEY}\n{OTHER}", "several lines"),
    "options": (f'command="sh" {KEY}', "options before the key"),
    "no-pty": (f"no-pty {KEY}", "options before the key"),
    "DSA": ("ssh-dss AAAA", "expected one of"),
    "private": ("-----BEGIN OPENSSH PRIVATE KEY-----", "expected one of"),
    "no key": ("ssh-ed25519", "not base64"),
    "not base64": ("ssh-ed25519 A*A", "not base64"),
    "another type inside": (KEY.replace("ssh-ed25519", "ssh-rsa", 1), "damaged"),
    "cut off": (KEY[:60], "damaged"),
    "cut off early": (KEY[:20], "damaged"),
    "cut off inside base64": (KEY[:59], "not base64"),
}


@pytest.mark.parametrize(("line", "words"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_bad_key_is_named(line: Any, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        directory.ssh_key_fingerprint(line)
    (problem,) = directory.directory_problems([{"name": "alice", "keys": [line]}], [])
    assert problem.startswith("directory_people: key of alice: got ")
    assert words in problem


def test_good_people_and_groups_have_no_problems() -> None:
    people = [{"name": "alice", "keys": [KEY, OTHER]}, {"name": "bob"}]
    groups = [{"name": "staff", "members": ["alice", "bob"]}, {"name": "empty", "members": []}]
    assert directory.directory_problems(people, groups) == []


PROBLEMS = {
    "twice": ([{"name": "alice"}, {"name": "alice"}], [], "has alice more than once"),
    "capitals": ([{"name": "Alice"}], [], "'Alice' is not a name"),
    "injection": ([{"name": "a,ou=services"}], [], "is not a name"),
    "one key, two people": (
        [{"name": "alice", "keys": [KEY]}, {"name": "bob", "keys": [f"{KEY} bob"]}],
        [],
        "bob has a key that alice has already",
    ),
    "one key twice": ([{"name": "alice", "keys": [KEY, KEY]}], [], "alice has already"),
    "unknown member": (
        [{"name": "alice"}],
        [{"name": "staff", "members": ["alice", "dora"]}],
        "dora is in staff, but not in directory_people",
    ),
    "group with a blank": ([], [{"name": "a b", "members": []}], "'a b' is not the name of a"),
    "public": ([], [{"name": "public", "members": []}], "'public' is not the name of a group"),
    "group twice": ([], [{"name": "a"}, {"name": "a"}], "has a more than once"),
}


@pytest.mark.parametrize(("people", "groups", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_is_one_sentence(
    people: list[dict[str, Any]], groups: list[dict[str, Any]], words: str
) -> None:
    (problem,) = directory.directory_problems(people, groups)
    assert words in problem


def test_a_person_becomes_an_entry() -> None:
    person = {"name": "alice", "full_name": "Alice van Example", "keys": [f"{KEY}  alice\n"]}
    assert directory.directory_people_entries([person], SUFFIX) == {
        "uid=alice,ou=people,dc=x": {
            "cn": ["Alice van Example"],
            "sn": ["Example"],
            "mail": [],
            "sshPublicKey": [f"{KEY} alice"],
            "sshPublicKeyId": [publickey.parse(KEY).fingerprint],
        }
    }


@pytest.mark.parametrize(("disabled", "expected"), [(True, ["000001010000Z"]), (False, [])])
def test_disabled_is_said_or_left_alone(disabled: bool, expected: list[str]) -> None:
    (entry,) = directory.directory_people_entries(
        [{"name": "m", "disabled": disabled}], SUFFIX
    ).values()
    assert entry["pwdAccountLockedTime"] == expected
    (silent,) = directory.directory_people_entries([{"name": "m"}], SUFFIX).values()
    assert "pwdAccountLockedTime" not in silent


def test_groups_become_entries_but_for_empty_ones() -> None:
    groups = [
        {"name": "staff", "description": "All", "members": ["alice"]},
        {"name": "empty", "members": []},
        {"name": "none"},
    ]
    assert directory.directory_group_entries(groups, SUFFIX) == {
        "cn=staff,ou=groups,dc=x": {
            "description": ["All"],
            "member": ["uid=alice,ou=people,dc=x"],
        }
    }


WANTED = {"uid=a,dc=x": {"cn": ["A"], "mail": [], "sshPublicKey": ["k1", "k2"]}}


def changes(**entry: Any) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = directory.ldap_changes([entry] if entry else [], WANTED)
    return result


def test_nothing_changes_when_all_is_there() -> None:
    # One value comes as text, several as a list in any order, names in any case.
    same = changes(dn="UID=a,dc=x", CN="A", sshPublicKey=["k2", "k1"], objectClass=["top"])
    assert same == {"missing": [], "different": [], "extra": []}


def test_a_missing_entry_comes_without_its_empty_attributes() -> None:
    assert changes()["missing"] == [
        {"dn": "uid=a,dc=x", "attributes": {"cn": ["A"], "sshPublicKey": ["k1", "k2"]}}
    ]


@pytest.mark.parametrize(
    ("attributes", "different"),
    [
        ({"cn": "B", "sshPublicKey": ["k1", "k2"]}, {"cn": ["A"]}),
        ({"cn": "A", "sshPublicKey": "k1"}, {"sshPublicKey": ["k1", "k2"]}),
        ({"cn": "A", "sshPublicKey": ["k1", "k2", "k3"]}, {"sshPublicKey": ["k1", "k2"]}),
        ({"cn": "A", "sshPublicKey": ["k1", "k2"], "mail": "a@x"}, {"mail": []}),
        ({}, {"cn": ["A"], "sshPublicKey": ["k1", "k2"]}),
    ],
)
def test_only_what_differs_is_written(
    attributes: dict[str, Any], different: dict[str, Any]
) -> None:
    assert changes(dn="uid=a,dc=x", **attributes)["different"] == [
        {"dn": "uid=a,dc=x", "attributes": different}
    ]


def test_what_nobody_declared_is_extra() -> None:
    entries = [{"dn": "uid=b,dc=x", "cn": "B"}]
    assert directory.ldap_changes(entries, {})["extra"] == ["uid=b,dc=x"]


def test_no_password_is_among_what_the_role_writes_of_a_person() -> None:
    """A password in an entry unlocks the account (slapo-ppolicy): the disabled would be back."""
    people = [{"name": "mallory", "full_name": "M", "mail": "m@x", "keys": [], "disabled": True}]
    (entry,) = directory.directory_people_entries(people, "dc=a").values()
    assert not any("password" in name.lower() for name in entry)
    assert entry["pwdAccountLockedTime"] == [directory.DISABLED]


# --- replicas -------------------------------------------------------------------------------

SYNCREPL = (
    'rid=001 provider=ldaps://ldap1 bindmethod=simple binddn="cn=replica,ou=services,dc=a"'
    ' credentials="s3#cret" attrs="uid,cn"'
)


def test_slapd_may_say_the_same_in_other_words() -> None:
    value = (
        '{0}rid=001 provider=ldaps://ldap1 bindmethod=simple timeout=0 attrs="uid,cn"'
        ' retry="1 60 5 +" binddn="cn=replica,ou=services,dc=a" credentials=s3#cret'
    )
    assert directory.directory_follows(value, SYNCREPL)


@pytest.mark.parametrize(
    ("old", "new"),
    [("s3#cret", "other"), ("ldap1", "ldap2"), ('attrs="uid,cn"', 'attrs="uid"'), ("rid=001", "")],
)
def test_another_meaning_is_a_difference(old: str, new: str) -> None:
    assert not directory.directory_follows("{0}" + SYNCREPL.replace(old, new), SYNCREPL)


def test_a_server_that_follows_nobody_differs() -> None:
    assert not directory.directory_follows("", SYNCREPL)


def test_only_people_without_a_password_who_are_enabled_get_their_first() -> None:
    """A password that is written takes the lock away, and people choose their own."""
    people = [
        {"name": "new", "password": "first"},
        {"name": "without", "password": "first"},
        {"name": "chosen", "password": "first"},
        {"name": "locked", "password": "first"},
        {"name": "disabled", "password": "first", "disabled": True},
        {"name": "unnamed"},
    ]
    entries = [
        {"dn": "uid=without,ou=people,dc=x", "cn": "Without"},
        {"dn": "uid=Chosen,ou=people,dc=x", "userPassword": "{SSHA}x"},
        {"dn": "uid=locked,ou=people,dc=x", "pwdAccountLockedTime": "000001010000Z"},
    ]
    assert directory.directory_first_passwords(people, entries, SUFFIX) == [
        {"dn": "uid=new,ou=people,dc=x", "password": "first"},
        {"dn": "uid=without,ou=people,dc=x", "password": "first"},
    ]


def test_a_program_has_a_hash_that_stays_the_same() -> None:
    made = directory.directory_program_hash("correct horse battery", "keys")
    assert made == directory.directory_program_hash("correct horse battery", "keys")
    assert made != directory.directory_program_hash("correct horse battery", "web")
    stored = base64.b64decode(made.removeprefix("{SSHA}"))
    digest, salt = stored[:20], stored[20:]
    assert len(salt) == 8
    assert hashlib.sha1(b"correct horse battery" + salt, usedforsecurity=False).digest() == digest


def test_an_account_accepts_its_former_password_only_while_there_is_one() -> None:
    services = [
        {"name": "keys", "password": "new"},
        {"name": "web", "password": "same"},
        {"name": "replica", "password": ""},
    ]
    assert directory.directory_service_passwords(services, {"keys": "old", "web": ""}) == [
        {"name": "keys", "password": "new", "state": "present"},
        {"name": "keys", "password": "old", "state": "present"},
        {"name": "web", "password": "same", "state": "exact"},
    ]


def test_clients_of_the_directory_are_addresses_and_networks() -> None:
    clients = ["192.0.2.7", "198.51.100.0/24", "2001:db8::/32", "::1"]
    assert directory.directory_client_problems(clients) == []
    assert directory.directory_peers(clients) == [
        "peername.ip=192.0.2.7%255.255.255.255",
        "peername.ip=198.51.100.0%255.255.255.0",
        "peername.ipv6=2001:db8::%ffff:ffff::",
        "peername.ipv6=::1%ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ]


@pytest.mark.parametrize("client", ["hg1", "192.0.2.7/24", "192.0.2.0 by * manage", ""])
def test_other_clients_are_refused_with_the_way_out(client: str) -> None:
    (problem,) = directory.directory_client_problems(["192.0.2.7", client])
    assert repr(client) in problem
    assert "base_address" in problem


def test_a_first_password_has_the_length_that_the_server_demands() -> None:
    people = [{"name": "short", "password": "a" * 11}, {"name": "long", "password": "a" * 12}]
    (problem,) = directory.directory_problems(people, [])
    assert "the first password of short has 11 characters, expected at least 12" in problem
    assert directory.MIN_PASSWORD == MIN_PASSWORD

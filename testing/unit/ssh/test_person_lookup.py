"""The state of a person by the directory's entries, and how long an answer is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core import settings_file as settings
from hgfleet.core.errors import UnavailableError
from hgfleet.directory import publickey
from hgfleet.directory.person_state import PATIENCE_S, PersonState
from hgfleet.ssh.keys import people_daemon, person_lookup
from hgfleet.ssh.keys import settings as keys_config
from testing.unit.ssh.keys_settings import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.directory.entries import Entry

PARSE = keys_config.parse
CONFIG = settings.parse_table("keys.toml", SETTINGS, PARSE)
BLOB = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
KEY = publickey.check("ssh-ed25519", BLOB).fingerprint
ALICE = "uid=alice,ou=people,dc=x"
PERSON_ID = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"


class Directory:
    """A server with entries, or a server that does not answer."""

    def __init__(self, people: list[Entry], groups: list[Entry] | None = None) -> None:
        self.people = people
        self.groups = groups or []
        self.filters: list[str] = []

    def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
        assert "userPassword" not in attributes
        self.filters.append(filter_)
        if base != CONFIG.people_base:
            return self.groups
        # A server gives an operational attribute only to those who ask for it by its name.
        return [
            (dn, {k: v for k, v in values.items() if k in attributes}) for dn, values in self.people
        ]


def entry(**attributes: bytes) -> Entry:
    values = {name: [value] for name, value in attributes.items()}
    return ALICE, {"uid": [b"alice"], **values}


def group(name: str) -> Entry:
    return f"cn={name},ou=groups,dc=x", {"cn": [name.encode()]}


def find(*people: Entry, groups: list[Entry] | None = None) -> PersonState:
    directory = Directory(list(people), groups)
    return person_lookup.find(CONFIG, "alice", lambda _config, _uri: directory)


def test_an_enabled_person_has_groups_and_keys() -> None:
    person = entry(sshPublicKey=f"ssh-ed25519 {BLOB} laptop".encode(), sshPublicKeyId=KEY.encode())
    assert find(person, groups=[group("a"), group("b"), group("no group")]) == PersonState(
        "enabled", frozenset({"a", "b"}), frozenset({KEY})
    )


@pytest.mark.parametrize("lock", [{}, {"pwdAccountLockedTime": b"000001010000Z"}])
def test_the_id_of_a_person_is_told_disabled_or_not(lock: dict[str, bytes]) -> None:
    assert find(entry(entryUUID=PERSON_ID.encode(), **lock)).person_id == PERSON_ID
    assert find(entry(**lock)).person_id == ""


def test_a_key_is_found_as_the_search_of_a_login_finds_it() -> None:
    blanks = entry(sshPublicKey=f"ssh-ed25519 {BLOB}".encode(), sshPublicKeyId=f" {KEY} ".encode())
    assert find(blanks).keys == {KEY}


@pytest.mark.parametrize(
    "stored",
    [
        {"sshPublicKeyId": KEY.encode()},
        {"sshPublicKey": f"ssh-ed25519 {BLOB}".encode()},
        {
            "sshPublicKey": f'command="sh" ssh-ed25519 {BLOB}'.encode(),
            "sshPublicKeyId": KEY.encode(),
        },
    ],
)
def test_a_key_that_lets_nobody_in_is_none(stored: dict[str, bytes]) -> None:
    assert find(entry(**stored)) == PersonState("enabled")


@pytest.mark.parametrize(
    ("people", "state"),
    [
        ([], "missing"),
        ([entry(pwdAccountLockedTime=b"000001010000Z")], "disabled"),
        ([entry(pwdAccountLockedTime=b"20261120120000Z")], "enabled"),
        ([entry(), entry()], "unclear"),
        ([(ALICE, {"uid": [b"bob"]})], "unclear"),
        ([(ALICE, {"uid": [b"alice", b"bob"]})], "unclear"),
    ],
)
def test_disabled_and_missing_are_told_apart(people: list[Entry], state: str) -> None:
    assert find(*people).state == state


def test_too_many_groups_admit_nobody() -> None:
    assert find(entry(), groups=[group(f"g{n}") for n in range(201)]).state == "unclear"


def test_a_server_that_does_not_answer_is_passed_over() -> None:
    def connect(_config: keys_config.Config, uri: str) -> Directory:
        if uri == "ldaps://near":
            raise UnavailableError("(bind: down)")
        return Directory([entry()])

    assert person_lookup.find(CONFIG, "alice", connect).state == "enabled"

    def none(_config: keys_config.Config, _uri: str) -> Directory:
        raise UnavailableError("(bind: down)")

    with pytest.raises(UnavailableError, match=r"ldaps://near \(bind: down\); ldaps://far"):
        person_lookup.find(CONFIG, "alice", none)


@pytest.mark.parametrize("timeout", [0.5, 30.0])
def test_servers_that_say_nothing_leave_time_for_the_last_one(timeout: float) -> None:
    given = settings.parse_table(
        "keys.toml", {**SETTINGS, "timeout": timeout, "uris": ["ldaps://a", "ldaps://b"]}, PARSE
    )
    taken = 0.0

    def connect(config: keys_config.Config, uri: str) -> Directory:
        nonlocal taken
        taken += config.timeout
        if uri == "ldaps://a":
            raise UnavailableError("(bind: timeout)")
        return Directory([entry()])

    assert person_lookup.find(given, "alice", connect).state == "enabled"
    assert taken == min(2 * timeout, person_lookup.ANSWER_S) < PATIENCE_S
    assert given.timeout == timeout


@pytest.mark.parametrize(
    ("people", "state"),
    [
        ([], "unclear"),
        ([entry(pwdAccountLockedTime=b"000001010000Z")], "unclear"),
        ([entry()], "enabled"),
    ],
)
def test_a_replica_that_is_behind_is_no_evidence_against_a_person(
    people: list[Entry], state: str, tmp_path: Path
) -> None:
    # It is being filled, for example, and the provider is away.
    stale = tmp_path / "stale"
    own = {**SETTINGS, "uris": ["ldapi://%2Frun", "ldaps://far"], "stale_file": str(stale)}
    config = settings.parse_table("keys.toml", own, keys_config.parse)

    def connect(_config: keys_config.Config, uri: str) -> Directory:
        if uri == "ldaps://far":
            raise UnavailableError("(bind: down)")
        return Directory(people)

    fresh = person_lookup.find(config, "alice", connect).state
    assert fresh in ("missing", "disabled", "enabled")
    stale.touch()
    assert person_lookup.find(config, "alice", connect).state == state


def test_only_enabled_is_kept() -> None:
    answers = [PersonState("disabled"), PersonState("missing"), PersonState("enabled")]
    kept = person_lookup.Kept(lambda _name: answers.pop(0), lambda: 0.0)
    states = [kept.find("alice").state for _ in range(4)]
    assert states == ["disabled", "missing", "enabled", "enabled"]


def test_an_answer_is_kept_for_seconds_and_a_failure_is_not() -> None:
    now = 0.0
    answers: list[PersonState | Exception] = [
        PersonState("enabled"),
        UnavailableError("away"),
        PersonState("disabled"),
    ]

    def ask(_name: str) -> PersonState:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    kept = person_lookup.Kept(ask, lambda: now)
    assert kept.find("alice").state == "enabled"
    now = person_lookup.KEEP_S - 1
    assert kept.find("alice").state == "enabled"
    now = person_lookup.KEEP_S
    with pytest.raises(UnavailableError):
        kept.find("alice")
    assert kept.find("alice").state == "disabled"
    assert answers == []


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(person_lookup, "MOST_KEPT", 2)
    asked: list[str] = []

    def ask(name: str) -> PersonState:
        asked.append(name)
        return PersonState("enabled")

    kept = person_lookup.Kept(ask, lambda: 0.0)
    for name in ("a", "b", "c", "c", "a"):
        kept.find(name)
    assert asked == ["a", "b", "c", "a"]


def test_the_daemon_logs_what_is_not_enabled() -> None:
    logged: list[str] = []
    question = b'{"person":"alice"}'

    def away(_name: str) -> PersonState:
        raise UnavailableError("ldaps://near (bind: down)")

    enabled = people_daemon.answer(question, lambda _: PersonState("enabled"), logged.append)
    assert enabled == b'{"state":"enabled","groups":[],"keys":[]}\n'
    assert logged == []
    people_daemon.answer(question, lambda _: PersonState("disabled"), logged.append)
    assert logged[0].startswith("event=person state=disabled person=alice seconds=")
    assert people_daemon.answer(question, away, logged.append) == b'{"state":"unavailable"}\n'
    assert 'reason="ldaps://near (bind: down)"' in logged[1]

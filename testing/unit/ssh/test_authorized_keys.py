"""Key lookup: a line for exactly one clean person, and empty output in every other case."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core import settings_file as settings
from hgfleet.core.errors import ConfigurationError, UnavailableError
from hgfleet.directory import publickey
from hgfleet.directory.entries import DeniedError
from hgfleet.ssh.keys import authorized_keys, lookup, lookup_counts
from hgfleet.ssh.keys import settings as keys_config
from testing.unit.ssh.keys_settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.directory.entries import Entry

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIAEBAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
ASKED = publickey.check("ssh-ed25519", KEY)
QUESTION = [ASKED.fingerprint, "ssh-ed25519", KEY]
ALICE = "uid=alice,ou=people,dc=x"


def parse_settings(data: dict[str, Any]) -> keys_config.Config:
    return settings.parse_table("keys.toml", data, keys_config.parse)


CONFIG = parse_settings(SETTINGS)


def entry(dn: str = ALICE, **attributes: object) -> Entry:
    values: dict[str, list[bytes]] = {
        "uid": [b"alice"],
        "sshPublicKey": [f"ssh-ed25519 {KEY} alice@laptop".encode()],
    }
    for name, value in attributes.items():
        given = value if isinstance(value, list) else [value]
        values[name] = [v if isinstance(v, bytes) else str(v).encode() for v in given]
    return dn, values


def group(*names: str) -> Entry:
    return f"cn={names[0] if names else ''},ou=groups,dc=x", {"cn": [n.encode() for n in names]}


class FakeDirectory:
    """Answers with given entries, and notes its searches."""

    def __init__(self, people: list[Entry], groups: list[Entry] | None = None) -> None:
        self.people = people
        self.groups = groups if groups is not None else [group("maintainers"), group("sandbox")]
        self.asked: list[tuple[str, str]] = []

    def search(self, base: str, filter_: str, attributes: list[str]) -> list[Entry]:
        assert attributes, "asking for everything would ask for passwords"
        self.asked.append((base, filter_))
        if base != CONFIG.people_base:
            return self.groups
        # A server gives an operational attribute only to those who ask for it by its name.
        asked = {name.lower() for name in attributes}
        return [
            (dn, {name: given for name, given in values.items() if name.lower() in asked})
            for dn, values in self.people
        ]


def servers(**by_host: FakeDirectory | Exception) -> tuple[lookup.Connect, list[str]]:
    tried: list[str] = []

    def connect(_config: keys_config.Config, uri: str) -> lookup.Directory:
        tried.append(uri)
        answer = by_host[uri.removeprefix("ldaps://")]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return connect, tried


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[str | None, str]]:
    """Ask as sshd does; return the line for sshd and the line of the log."""
    path = tmp_path / "keys.toml"
    lines = [f"{name} = {value!r}" for name, value in SETTINGS.items()]
    path.write_text("\n".join(lines))

    def run(
        *people: Entry,
        question: list[str] = QUESTION,
        connect: lookup.Connect | None = None,
        groups: list[Entry] | None = None,
    ) -> tuple[str | None, str]:
        logged: list[str] = []
        chosen = connect or servers(near=FakeDirectory(list(people), groups))[0]
        ends: list[str] = []
        line = authorized_keys.answer(
            *(question, str(path), logged.append, chosen),
            done=lambda reason, _: ends.append(reason),
            clock=lambda: 1_764_345_600.5,
        )
        assert f" reason={ends[0]} " in logged[0]
        assert ends[0] in lookup_counts.REASONS, "metrics have each reason"
        assert len(logged) == 1, "every decision is one line"
        assert logged[0].isprintable()
        return line, logged[0]

    return run


# --- who gets in ----------------------------------------------------------------------------


def test_a_person_gets_the_forced_shell_with_the_groups(ask: Callable[..., Any]) -> None:
    line, log = ask(entry())
    assert line == (
        'restrict,command="/opt/hgfleet/current/bin/hgfleet-shell'
        " --user alice --groups maintainers,sandbox --login 1764345600"
        f' --fingerprint {ASKED.fingerprint}"'
        f" ssh-ed25519 {KEY}"
    )
    assert log.startswith("event=key decision=allow reason=ok fingerprint=SHA256:")
    assert "person=alice" in log
    assert "source=ldaps://near" in log
    assert re.search(r"seconds=\d+\.\d{3}$", log)


def test_the_shell_and_the_log_know_which_person_of_the_name_it_is(
    ask: Callable[..., Any],
) -> None:
    person_id = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
    line, log = ask(entry(entryUUID=person_id))
    assert f" --user alice --person-id {person_id} --groups " in line
    assert f" person=alice person_id={person_id} " in log


def test_a_person_without_groups_gets_in_with_none(ask: Callable[..., Any]) -> None:
    line, _ = ask(entry(), groups=[])
    assert (
        f'--user alice --login 1764345600 --fingerprint {ASKED.fingerprint}" ssh-ed25519 {KEY}'
        in line
    )


def test_the_right_one_of_several_keys_is_used(ask: Callable[..., Any]) -> None:
    stored = [f"ssh-ed25519 {OTHER} old", f"ssh-ed25519 {KEY} new"]
    line, _ = ask(entry(sshPublicKey=stored))
    assert line.endswith(KEY)


def test_an_old_broken_key_does_not_lock_a_person_out(ask: Callable[..., Any]) -> None:
    line, _ = ask(entry(sshPublicKey=["rubbish", b"\xff\xfe", f"ssh-ed25519 {KEY}"]))
    assert line is not None


def test_a_lock_after_wrong_passwords_does_not_concern_keys(ask: Callable[..., Any]) -> None:
    line, _ = ask(entry(pwdAccountLockedTime="20261120120000Z"))
    assert line is not None


def test_a_security_key_works(ask: Callable[..., Any]) -> None:
    blob = (
        "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
        "AAAABHNzaDo="
    )
    key = publickey.check("sk-ssh-ed25519@openssh.com", blob)
    stored = entry(sshPublicKey=f"{key.type} {blob} token")
    line, _ = ask(stored, question=[key.fingerprint, key.type, blob])
    assert line.endswith(f"sk-ssh-ed25519@openssh.com {blob}")


def test_attribute_names_come_in_any_case(ask: Callable[..., Any]) -> None:
    dn, values = entry()
    line, _ = ask((dn, {name.upper(): value for name, value in values.items()}))
    assert line is not None


def test_groups_with_unsafe_names_are_left_out_and_counted(ask: Callable[..., Any]) -> None:
    odd = ['a" sh', "A", "-x", "a,b", "a b", "a\n", "", "x" * 65, "public", "ünï", "a;b", "$(id)"]
    line, log = ask(entry(), groups=[group("staff"), *map(group, odd), group("a", "b"), group()])
    assert "--groups staff --login " in line
    assert f"unsafe_groups={len(odd) + 2}" in log


# --- who does not ---------------------------------------------------------------------------

HOSTILE_QUESTIONS = {
    "nothing": [],
    "only a fingerprint": [ASKED.fingerprint],
    "an argument too many": [*QUESTION, "x"],
    "empty": ["", "", ""],
    "star": ["SHA256:*", "ssh-ed25519", KEY],
    "filter": ["SHA256:*)(uid=alice", "ssh-ed25519", KEY],
    "closing parenthesis": [ASKED.fingerprint[:-1] + ")", "ssh-ed25519", KEY],
    "newline after the fingerprint": [ASKED.fingerprint + "\n", "ssh-ed25519", KEY],
    "MD5": ["MD5:00:11", "ssh-ed25519", KEY],
    "fingerprint of another key": [ASKED.fingerprint, "ssh-ed25519", OTHER],
    "another type": [ASKED.fingerprint, "sk-ssh-ed25519@openssh.com", KEY],
    "a type with options": [ASKED.fingerprint, 'command="sh" ssh-ed25519', KEY],
    "newline in the key": [ASKED.fingerprint, "ssh-ed25519", KEY + "\nssh-rsa x"],
    "blank in the key": [ASKED.fingerprint, "ssh-ed25519", KEY + " x"],
    "64 KiB": [ASKED.fingerprint, "ssh-ed25519", "A" * 65536],
    "64 KiB of type": [ASKED.fingerprint, "s" * 65536, KEY],
    "unicode": [ASKED.fingerprint, "ssh-ed25519", KEY[:-1] + "é"],
    "undecodable": ["\udcff" * 50, "ssh-ed25519", KEY],
    "type that is not allowed": [ASKED.fingerprint, "ssh-rsa", KEY],
    "certificate": [ASKED.fingerprint, "ssh-ed25519-cert-v01@openssh.com", KEY],
}


@pytest.mark.parametrize("question", HOSTILE_QUESTIONS.values(), ids=HOSTILE_QUESTIONS)
def test_no_server_hears_of_a_bad_question(ask: Callable[..., Any], question: list[str]) -> None:
    connect, tried = servers(near=AssertionError("asked"))
    line, log = ask(question=question, connect=connect)
    assert line is None
    assert re.search(r"decision=deny reason=(question|type) ", log), log
    assert tried == []
    assert len(log) < 1500


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("type that is not allowed", "type"),
        ("certificate", "type"),
        ("another type", "question"),
        ("64 KiB", "question"),
        ("fingerprint of another key", "question"),
    ],
)
def test_a_type_that_the_site_does_not_allow_is_told_from_a_broken_question(
    ask: Callable[..., Any], question: str, reason: str
) -> None:
    _, log = ask(question=HOSTILE_QUESTIONS[question])
    assert f"decision=deny reason={reason} " in log


HOSTILE_ANSWERS = {
    "nobody": ([], "unknown"),
    "two people": ([entry(), entry("uid=bob,ou=people,dc=x", uid="bob")], "ambiguous"),
    "disabled": ([entry(pwdAccountLockedTime="000001010000Z")], "disabled"),
    "no name": ([entry(uid=[])], "name"),
    "two names": ([entry(uid=["alice", "root"])], "name"),
    "name with a blank": ([entry(uid="alice --groups maintainers")], "name"),
    "name with a quote": ([entry(uid='alice"')], "name"),
    "name with a newline": ([entry(uid="alice\n")], "name"),
    "name with NUL": ([entry(uid="alice\0")], "name"),
    "name with a semicolon": ([entry(uid="alice;id")], "name"),
    "name with a substitution": ([entry(uid="$(id)")], "name"),
    "name like an option": ([entry(uid="--user")], "name"),
    "name of an operator": ([entry(uid="operator:root")], "name"),
    "name in capitals": ([entry(uid="Alice")], "name"),
    "name that goes up": ([entry(uid="../alice")], "name"),
    "name that is long": ([entry(uid="a" * 65536)], "name"),
    "name that is not text": ([entry(uid=b"\xff")], "name"),
    "no key": ([entry(sshPublicKey=[])], "directory-key"),
    "another key": ([entry(sshPublicKey=f"ssh-ed25519 {OTHER}")], "directory-key"),
    "key with options": ([entry(sshPublicKey=f'command="sh" ssh-ed25519 {KEY}')], "directory-key"),
    "key with an option": ([entry(sshPublicKey=f"no-pty ssh-ed25519 {KEY}")], "directory-key"),
    "two lines": (
        [entry(sshPublicKey=f"ssh-ed25519 {KEY}\nssh-ed25519 {OTHER}")],
        "directory-key",
    ),
    "line in front": ([entry(sshPublicKey=f"\nssh-ed25519 {KEY}")], "directory-key"),
    "NUL in the key": ([entry(sshPublicKey=f"ssh-ed25519 {KEY}\0")], "directory-key"),
    "bytes": ([entry(sshPublicKey=b"\x00\xff\xfe")], "directory-key"),
    "type that is not allowed": ([entry(sshPublicKey=f"ssh-rsa {KEY}")], "directory-key"),
    "a megabyte": ([entry(sshPublicKey=f"ssh-ed25519 {KEY} " + "x" * 1_000_000)], "directory-key"),
    "a megabyte of base64": (
        [entry(sshPublicKey="ssh-ed25519 " + "A" * 1_000_000)],
        "directory-key",
    ),
    "thousands of keys": ([entry(sshPublicKey=[f"ssh-ed25519 {OTHER}"] * 5000)], "directory-key"),
    "a certificate": (
        [entry(sshPublicKey=f"ssh-ed25519-cert-v01@openssh.com {KEY}")],
        "directory-key",
    ),
    "a CA": ([entry(sshPublicKey=f"cert-authority ssh-ed25519 {KEY}")], "directory-key"),
    "a private key": ([entry(sshPublicKey="-----BEGIN OPENSSH PRIVATE KEY-----")], "directory-key"),
}


@pytest.mark.parametrize(("people", "reason"), HOSTILE_ANSWERS.values(), ids=HOSTILE_ANSWERS)
def test_a_hostile_answer_is_refused(
    ask: Callable[..., Any], people: list[Entry], reason: str
) -> None:
    line, log = ask(*people)
    assert line is None
    assert f"decision=deny reason={reason} " in log
    assert len(log) < 1500


def test_no_change_of_a_stored_key_reaches_sshd(ask: Callable[..., Any]) -> None:
    chance = random.Random(20261121)
    good = f"ssh-ed25519 {KEY} alice@laptop".encode()
    expected, _ = ask(entry())
    words = [
        b"\n",
        b"\r",
        b"\0",
        b'"',
        b",",
        b" ",
        b"\t",
        b"\xff",
        b'command="sh"',
        b"restrict ",
        b"\\",
    ]
    let_in = 0
    for _ in range(2000):
        value = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(value) + 1)
            piece = chance.choice([chance.randbytes(1), chance.choice(words), b""])
            value[place : place + chance.choice([0, 0, 1, 5])] = piece
        line, log = ask(entry(sshPublicKey=bytes(value)))
        assert "reason=crash" not in log, value
        # A change of the comment does not change the key.
        assert line in (None, expected), value
        let_in += line is not None
    assert 0 < let_in < 1000


def test_too_many_groups_are_refused(ask: Callable[..., Any]) -> None:
    line, log = ask(entry(), groups=[group(f"g{number}") for number in range(201)])
    assert line is None
    assert "reason=groups" in log


# --- several servers ------------------------------------------------------------------------


def test_the_next_server_is_asked_when_one_is_away(ask: Callable[..., Any]) -> None:
    connect, tried = servers(near=UnavailableError("(bind: away)"), far=FakeDirectory([entry()]))
    line, log = ask(connect=connect)
    assert line is not None
    assert "source=ldaps://far" in log
    assert tried == ["ldaps://near", "ldaps://far"]


def test_a_no_is_final(ask: Callable[..., Any]) -> None:
    connect, tried = servers(near=FakeDirectory([]), far=FakeDirectory([entry()]))
    line, _ = ask(connect=connect)
    assert line is None
    assert tried == ["ldaps://near"]


def test_login_is_refused_when_no_server_answers(ask: Callable[..., Any]) -> None:
    away = UnavailableError("(bind: Can't contact LDAP server)")
    line, log = ask(connect=servers(near=away, far=away)[0])
    assert line is None
    assert "reason=unavailable" in log
    assert "ldaps://near" in log
    assert "ldaps://far" in log


def test_a_server_that_was_passed_over_is_in_the_log(ask: Callable[..., Any]) -> None:
    busy = UnavailableError("(search: Server is busy)")
    _, log = ask(connect=servers(near=busy, far=FakeDirectory([entry()]))[0])
    assert 'passed_over="ldaps://near (search: Server is busy)"' in log


def test_a_refusal_names_the_server_that_decided(ask: Callable[..., Any]) -> None:
    _, log = ask()
    assert "source=ldaps://near" in log


def test_a_replica_that_is_behind_is_asked_last(tmp_path: Path) -> None:
    stale_file = tmp_path / "stale"
    uris = ["ldapi://%2Frun%2Fslapd%2Fldapi", "ldaps://one", "ldaps://two"]
    config = parse_settings({**SETTINGS, "uris": uris, "stale_file": str(stale_file)})
    away = UnavailableError("(away)")
    connect, tried = servers(**{uri.removeprefix("ldaps://"): away for uri in uris})

    with pytest.raises(DeniedError, match="unavailable"):
        lookup.find_person(config, ASKED, connect)
    stale_file.touch()
    with pytest.raises(DeniedError, match="unavailable"):
        lookup.find_person(config, "alice", connect)

    assert tried == [*uris, uris[1], uris[2], uris[0]]


@pytest.mark.parametrize("error", [OSError("no file"), RuntimeError("bug"), MemoryError()])
def test_every_failure_is_a_refusal_in_the_log(ask: Callable[..., Any], error: Exception) -> None:
    line, log = ask(connect=servers(near=error)[0])
    assert line is None
    assert re.search("reason=(configuration|crash) ", log)


def test_login_is_refused_without_configuration(tmp_path: Path) -> None:
    logged: list[str] = []
    assert authorized_keys.answer(QUESTION, str(tmp_path / "none"), logged.append) is None
    assert "reason=configuration" in logged[0]


# --- searches ------------------------------------------------------------------------------


def test_only_enabled_people_are_asked_for() -> None:
    directory = FakeDirectory([entry()])
    lookup.find_person(CONFIG, ASKED, servers(near=directory)[0])
    enabled = "(!(pwdAccountLockedTime=000001010000Z))"
    has_key = f"(sshPublicKeyId={ASKED.fingerprint})"
    assert directory.asked == [
        ("ou=people,dc=x", f"(&(objectClass=ldapPublicKey){has_key}{enabled})"),
        ("ou=groups,dc=x", f"(&(objectClass=groupOfNames)(member={ALICE}))"),
    ]


def test_a_login_does_not_wait_for_imports() -> None:
    # Importing one of these takes longer than the lookup itself: `re` takes 5 ms.
    modules = "import hgfleet.ssh.keys.authorized_keys"
    script = f"import sys; sys.path.append({{!r}}); {modules}; print(*sys.modules)"
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script.format(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.split()
    assert "hgfleet.directory.publickey" in loaded
    assert {"re", "typing", "collections", "enum", "os", "ssl", "tomllib"}.isdisjoint(loaded)


def test_the_checker_names_the_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("timeout = 2")
    monkeypatch.setattr("sys.argv", ["hgfleet-keys", "--check", str(path)])
    assert authorized_keys.main() == ConfigurationError.exit_code
    assert capsys.readouterr().err.startswith(f"{path}: uris: got nothing, expected")


def test_a_probe_names_every_server_with_its_problem() -> None:
    connect, _ = servers(near=UnavailableError("(bind: away)"), far=FakeDirectory([]))
    results = lookup.probe(CONFIG, connect)
    assert [(uri, problem) for uri, problem, _ in results] == [
        ("ldaps://near", "(bind: away)"),
        ("ldaps://far", None),
    ]


@pytest.mark.parametrize(
    ("stored", "detail"),
    [
        ([], "no-key"),
        ([f"ssh-ed25519 {OTHER}"], "other-key"),
        ([f"ssh-ed25519 {OTHER}", b"\xff"], "other-key,not-text"),
        # A line of the log names at most five keys.
        ([f"ssh-ed25519 {OTHER}"] * 9, ",".join(["other-key"] * 5)),
    ],
)
def test_the_log_says_what_is_wrong_with_each_stored_key(
    ask: Callable[..., Any], stored: list[Any], detail: str
) -> None:
    _, log = ask(entry(sshPublicKey=stored))
    assert f"detail={detail} " in f"{log} "

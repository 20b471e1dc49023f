"""auth.toml, and what is made of the directory's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.auth import config, daemon
from hgfleet.auth.directory import order, person_of
from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

GOOD: dict[str, Any] = {
    "uris": ["ldapi:///", "ldaps://ldap1"],
    "people_base": "ou=people,dc=example,dc=org",
    "groups_base": "ou=groups,dc=example,dc=org",
    "bind_dn": "cn=web,ou=services,dc=example,dc=org",
    "ca_file": "/etc/hgfleet/tls/ca.pem",
}


def test_what_is_needed_is_enough() -> None:
    parsed = config.parse(GOOD)
    assert parsed.uris == ("ldapi:///", "ldaps://ldap1")
    assert parsed.timeout == 2.0
    assert config.parse({**GOOD, "timeout": 1}).timeout == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uris": []}, "uris: got"),
        ({"uris": "ldaps://ldap1"}, "uris: got"),
        ({"uris": ["ldap://ldap1"]}, "expected ldaps://HOST"),
        ({"uris": [1]}, "expected ldaps://HOST"),
        ({"bind_dn": ""}, "bind_dn: got ''"),
        ({"bind_dn": None}, "bind_dn: got None"),
        ({"ca_file": "/a\n/b"}, "ca_file: got"),
        ({"timeout": 0}, "timeout: got 0"),
        ({"timeout": True}, "timeout: got True"),
        ({"timeout": 60}, "timeout: got 60"),
        ({"password": "x"}, "unknown settings password"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        config.parse({**GOOD, **change})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="people_base: got None, expected a text"):
        config.parse({name: value for name, value in GOOD.items() if name != "people_base"})


@pytest.mark.parametrize("text", ["uris = [", "\udcff", 'uris = ["ldaps://a"]'])
def test_the_check_says_what_is_wrong_with_a_file(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "auth.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert daemon.main(["--check", str(file)]) == 78
    assert str(file) in capsys.readouterr().err


def test_the_daemon_is_started_by_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert daemon.main(["--check", str(tmp_path / "missing.toml")]) == 78
    monkeypatch.delenv("LISTEN_FDS", raising=False)
    with pytest.raises(ConfigurationError, match="socket unit"):
        daemon._listening()
    assert "missing.toml" in capsys.readouterr().err


def test_servers_that_failed_are_asked_last() -> None:
    uris = ("ldapi:///", "ldaps://one", "ldaps://two")
    assert order(uris, set()) == list(uris)
    assert order(uris, {"ldapi:///", "ldaps://one"}) == ["ldaps://two", "ldapi:///", "ldaps://one"]
    assert order(uris, set(uris)) == list(uris)


BOB = "uid=bob,ou=people,dc=example,dc=org"


@pytest.mark.parametrize(
    ("found", "dn"),
    [
        ([(BOB, {"uid": [b"bob"]})], BOB),
        ([(BOB, {"uid": [b"bob"], "pwdAccountLockedTime": [b"20261121000000Z"]})], BOB),
        ([(BOB, {"uid": [b"bob"], "pwdaccountlockedtime": [b"000001010000Z"]})], None),
        ([(BOB, {"uid": [b"Bob"]})], None),
        ([(BOB, {"uid": [b"bob", b"alice"]})], None),
        ([(BOB, {})], None),
        ([(BOB, {"uid": [b"bob"]}), ("uid=bob2", {"uid": [b"bob"]})], None),
        ([], None),
    ],
)
def test_a_person_is_one_enabled_entry_of_that_name(
    found: list[tuple[str, dict[str, list[bytes]]]], dn: str | None
) -> None:
    assert person_of(found, "bob") == dn

from __future__ import annotations

from typing import Any

import pytest

from hgfleet.auth import settings
from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import parse_table

GOOD: dict[str, Any] = {
    "uris": ["ldapi:///", "ldaps://ldap1"],
    "people_base": "ou=people,dc=example,dc=org",
    "groups_base": "ou=groups,dc=example,dc=org",
    "bind_dn": "cn=web,ou=services,dc=example,dc=org",
    "ca_file": "/etc/hgfleet/tls/ca.pem",
}


def parse(data: dict[str, Any]) -> settings.Config:
    return parse_table("auth.toml", data, settings.parse)


def test_required_settings_are_enough() -> None:
    parsed = parse(GOOD)
    assert parsed.uris == ("ldapi:///", "ldaps://ldap1")
    assert parsed.timeout == 2.0
    assert parse({**GOOD, "timeout": 1}).timeout == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"uris": []}, "uris: got"),
        ({"uris": "ldaps://ldap1"}, "uris: got"),
        ({"uris": ["ldap://ldap1"]}, "expected ldaps://HOST"),
        ({"uris": [1]}, "uris: got"),
        ({"bind_dn": ""}, "bind_dn: got ''"),
        ({"bind_dn": None}, "bind_dn: got nothing"),
        ({"ca_file": "/a\n/b"}, "ca_file: got"),
        ({"timeout": 0}, "timeout: got 0"),
        ({"timeout": True}, "timeout: got True"),
        ({"timeout": 60}, "timeout: got 60"),
        ({"password": "x"}, "unknown settings password"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse({**GOOD, **change})


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match="people_base: got nothing, expected a text"):
        parse({name: value for name, value in GOOD.items() if name != "people_base"})

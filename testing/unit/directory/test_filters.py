"""No value gets out of its place in a search filter or in the name of an entry."""

from __future__ import annotations

import pytest

from hgfleet.directory import filters


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("*", r"\2a"),
        ("(", r"\28"),
        (")", r"\29"),
        ("\\", r"\5c"),
        ("\0", r"\00"),
        ("\n", r"\0a"),
        ("a b", r"a\20b"),
        ("é", r"\c3\a9"),
        ("|&!<>~", r"\7c\26\21\3c\3e\7e"),
        (")(uid=*))(|(uid=*", r"\29\28uid=\2a\29\29\28\7c\28uid=\2a"),
        ("\udcff", r"\ff"),
        ("SHA256:Ab+/9", "SHA256:Ab+/9"),
    ],
)
def test_filter_values_are_escaped(value: str, expected: str) -> None:
    assert filters.escape(value) == expected


def test_a_dn_with_signs_of_the_filter_language_cannot_widen_the_search() -> None:
    filter_ = filters.group_filter("uid=alice)(cn=*,ou=people,dc=x")
    assert filter_.count("(") == 3
    assert "*" not in filter_


def test_names_of_entries_are_escaped() -> None:
    assert filters.escape_dn('a,b=c+"\\<>;#é ') == (r"a\2cb\3dc\2b\22\5c\3c\3e\3b\23\c3\a9\20")


def test_a_search_for_people_leaves_out_the_disabled() -> None:
    assert filters.key_filter("SHA256:a*") == (
        r"(&(objectClass=ldapPublicKey)(sshPublicKeyId=SHA256:a\2a)"
        "(!(pwdAccountLockedTime=000001010000Z)))"
    )
    assert filters.name_filter("a)") == r"(&(uid=a\29)(!(pwdAccountLockedTime=000001010000Z)))"

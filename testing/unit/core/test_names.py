"""Names of people, groups and repositories."""

from __future__ import annotations

import re
import string

import pytest

from hgfleet.core import names

CHARACTERS = [*string.printable, "é", "\u2028", "\udcff", ""]


@pytest.mark.parametrize("character", CHARACTERS)
def test_names_are_what_their_expressions_say(character: str) -> None:
    for name in (character, f"a{character}", f"{character}1", f"a{character}b"):
        person = re.fullmatch(r"[a-z][a-z0-9._-]{0,31}", name)
        group = re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name)
        assert names.is_person(name) is bool(person)
        assert names.is_group(name) is bool(group)
        assert (names.group_problem(name) is None) is bool(group)


@pytest.mark.parametrize("character", CHARACTERS)
def test_a_person_id_is_an_entry_uuid_in_lower_case(character: str) -> None:
    whole = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
    expected = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    assert names.is_person_id(whole)
    assert not names.is_person_id(None)
    for at in (0, 8, 20, 35):
        for text in (whole[:at] + character + whole[at:], whole[:at] + character + whole[at + 1 :]):
            assert names.is_person_id(text) is bool(expected.fullmatch(text))


def test_names_have_a_longest_length() -> None:
    assert names.is_person("a" * 32)
    assert not names.is_person("a" * 33)
    assert names.is_group("a" * 64)
    assert not names.is_group("a" * 65)
    assert not names.is_group("public")


@pytest.mark.parametrize("path", ["a", "team/project", "1/2", "a" * 200, "/".join("abcdefgh")])
def test_a_path(path: str) -> None:
    assert names.path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "a path like"),
        ("/a", "a path like"),
        ("a//b", "a path like"),
        ("a/../b", "a path like"),
        ("A", "a path like"),
        ("a b", "a path like"),
        ("a+b", "a path like"),
        ("a\n", "a path like"),
        ("a" * 201, "at most 200 characters"),
        ("/".join("abcdefghi"), "at most 8 segments"),
        ("a/b.hg", "do not end in"),
        ("a.lock/b", "do not end in"),
        ("api/a", "another first segment ('api'"),
    ],
)
def test_a_wrong_path_is_told_what_it_should_look_like(path: str, expected: str) -> None:
    assert expected in (names.path_problem(path) or "")


def test_parents_are_named_nearest_first() -> None:
    assert names.parents("a/b/c") == ["a/b", "a"]
    assert names.parents("a") == []

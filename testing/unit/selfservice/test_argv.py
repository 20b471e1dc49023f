from __future__ import annotations

import pytest

from hgfleet.core.errors import UsageError
from hgfleet.selfservice import argv


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("repo list", ["repo", "list"]),
        ("  repo   list  ", ["repo", "list"]),
        ("a 'b c' d", ["a", "b c", "d"]),
        ("a \"b 'c'\" d", ["a", "b 'c'", "d"]),
        ("--description='x y'", ["--description=x y"]),
        ("a '' b", ["a", "", "b"]),
        # Nothing is expanded, and only quotes and blanks have a meaning.
        ("$HOME `id` $(a) ~ * \\", ["$HOME", "`id`", "$(a)", "~", "*", "\\"]),
        ("a; b|c & d > #e", ["a;", "b|c", "&", "d", ">", "#e"]),
    ],
)
def test_a_line_is_split_at_blanks_outside_of_quotes(line: str, expected: list[str]) -> None:
    assert argv.split(line) == expected


@pytest.mark.parametrize("line", ["a 'b", 'a "b', "a\nb", "a\tb", "a\0b", "a\x1bb", "a\udcffb"])
def test_an_open_quote_or_a_control_character_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        argv.split(line)


def test_a_quoted_text_is_safe_on_a_terminal() -> None:
    assert argv.quoted("a b") == "'a b'"
    assert argv.quoted("\x1b[31m\u202e") == "'?[31m?'"
    assert argv.quoted("x" * 100) == f"'{'x' * 100}'"
    assert argv.quoted("x" * 101) == f"'{'x' * 100}...'"

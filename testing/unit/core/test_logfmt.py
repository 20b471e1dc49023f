"""A log line is one line, with any text of a client in it."""

from __future__ import annotations

import shlex

import pytest

from hgfleet.core import logfmt


def test_plain_values_stand_as_they_are() -> None:
    got = logfmt.line("key", decision="allow", person="alice", seconds=0.01234, groups=None)
    assert got == "event=key decision=allow person=alice seconds=0.012"


@pytest.mark.parametrize(
    "hostile",
    [
        "two words",
        "a\nevent=key decision=allow",
        "a\r\n",
        "tab\there",
        'quote" decision=allow x="',
        "back\\slash",
        "\x00",
        "\x1b[2J",
        "\u2028",
        "\udcff",
        "ümläut",
        "",
        "x=y z",
    ],
)
def test_no_value_begins_a_line_or_a_field(hostile: str) -> None:
    got = logfmt.line("key", decision="deny", detail=hostile, last="z")
    assert got.isascii()
    assert got.isprintable()
    words = shlex.split(got)
    assert len(words) == 4, got
    assert (words[1], words[3]) == ("decision=deny", "last=z")


def test_long_values_are_cut_and_say_so() -> None:
    got = logfmt.line("session", command="A" * 65536)
    assert len(got) < logfmt.MAX_VALUE + 100
    assert "(65536 characters)" in got

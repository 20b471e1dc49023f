"""Text for people."""

from __future__ import annotations

import pytest

from hgfleet.core import text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a b", "a b"),
        ("é", "é"),
        ("a\nb\x1b[2J", "a\\x0ab\\x1b[2J"),
        ("\u2028\u202e", "\\u2028\\u202e"),
        ("\udcff\udcfe", "\\xff\\xfe"),
        ("x" * 200, "x" * 60 + "..." + "x" * 37),
        ("x" * 100, "x" * 100),
        ("x" * 60 + "y" * 50, "x" * 60 + "..." + "y" * 37),
    ],
)
def test_foreign_text_is_one_short_line(given: str, shown: str) -> None:
    assert text.shown(given) == shown
    assert shown.isprintable()


def test_long_text_keeps_its_limit() -> None:
    for limit in (10, 60, 300):
        assert len(text.shown("x" * 1000, limit)) == limit


@pytest.mark.parametrize(
    ("count", "decimal", "binary"),
    [
        (0, "0 B", "0 bytes"),
        (1, "1 B", "1 byte"),
        (999, "999 B", "999 bytes"),
        (1000, "1.0 kB", "1000 bytes"),
        (2**20, "1.0 MB", "1 MiB"),
        (2**20 + 1, "1.0 MB", "1.1 MiB"),
        (2**31, "2.1 GB", "2 GiB"),
        (10 * 2**20, "10.5 MB", "10 MiB"),
        (10 * 2**20 + 1, "10.5 MB", "10.1 MiB"),
        (2 * 10**9, "2.0 GB", "1.9 GiB"),
        (5 * 10**15, "5000.0 TB", "4656612.9 GiB"),
    ],
)
def test_sizes(count: int, decimal: str, binary: str) -> None:
    assert (text.size(count), text.binary_size(count)) == (decimal, binary)


def test_alternatives_are_joined_as_in_a_sentence() -> None:
    assert text.alternatives([]) == ""
    assert text.alternatives(["a"]) == "a"
    assert text.alternatives(("a", "b", "c")) == "a, b or c"

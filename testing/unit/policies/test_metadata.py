"""Metadata that hg cannot read back is refused; metadata of real histories is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mercurial import changelog, encoding

from hgfleet.policies.base import Marker
from hgfleet.policies.metadata import (
    MAX_SECONDS,
    MAX_USER,
    MAX_ZONE,
    Metadata,
    is_date,
    is_readable,
    marker_problem,
    problems,
)

MANIFEST = b"0" * 40


def text(
    user: bytes = b"alice",
    date: bytes = b"0 0",
    *,
    files: bytes = b"file\n",
    message: bytes = b"message",
    manifest: bytes = MANIFEST,
) -> bytes:
    return manifest + b"\n" + user + b"\n" + date + b"\n" + files + b"\n" + message


@pytest.mark.parametrize(
    "date",
    [
        b"0 0",
        b"1117041120 25200",
        b"-315619200 -43200",  # 1960
        b"2147483647 -50400",
        b"-2147483648 0",
        b"0 86399",
        b"0 -86399",
    ],
)
def test_a_date_that_core_writes_is_accepted(date: bytes) -> None:
    assert is_date(date)
    assert list(problems(text(date=date))) == []


@pytest.mark.parametrize(
    "date",
    [
        b"",
        b"0",
        b"0 ",
        b" 0",
        b"nan 0",
        b"inf 0",
        b"-inf 0",
        b"1e9 0",
        b"0.5 0",
        b"0 x",
        b"0 0.5",
        b"0x10 0",
        b"1_000 0",
        b"+1 0",
        b"2147483648 0",
        b"-2147483649 0",
        b"0 86400",
        b"0 -86400",
        b"99999999999999999999 0",
        b"\xd9\xa1 0",
    ],
)
def test_another_date_is_refused_unless_an_operator_admits_any(date: bytes) -> None:
    (problem,) = problems(text(date=date))
    assert problem.startswith('the date "')
    assert "hg commit --amend --date" in problem
    assert list(problems(text(date=date), any_date=True)) == []


@given(st.integers(), st.integers())
def test_dates_are_bounded_at_both_ends(seconds: int, zone: int) -> None:
    inside = -MAX_SECONDS <= seconds < MAX_SECONDS and -MAX_ZONE < zone < MAX_ZONE
    assert is_date(b"%d %d" % (seconds, zone)) is inside


@pytest.mark.parametrize(
    "user",
    [b"", b"  ", b"a\rb", b"a\0b", b"\x1b[31mroot", b"a\x7f", b"\xc2\x85", b"x" * (MAX_USER + 1)],
)
def test_a_user_that_is_no_line_of_text_is_refused(user: bytes) -> None:
    (problem,) = problems(text(user))
    assert "user" in problem
    assert "--user" in problem
    assert "\x1b" not in problem


@pytest.mark.parametrize(
    "user", [b"a", "Jörg <j@example.org>".encode(), b"J\xf6rg in Latin-1", b"x" * MAX_USER]
)
def test_other_users_are_fine(user: bytes) -> None:
    assert list(problems(text(user))) == []


@pytest.mark.parametrize(
    "extra", [b"branch:stable", b"close:1\0branch:x", b"", b"a:b\\0c", b"\xff:\xff"]
)
def test_an_extra_field_that_core_decodes_is_accepted(extra: bytes) -> None:
    changelog.decodeextra(extra)
    assert list(problems(text(date=b"0 0 " + extra))) == []
    assert is_readable(text(date=b"0 0 " + extra))


@pytest.mark.parametrize("extra", [b"garbage", b"branch:x\0garbage", b"a:\\x", b"a:b\\"])
def test_an_extra_field_that_core_cannot_decode_is_refused(extra: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of many wordings)
        changelog.decodeextra(extra)
    (problem,) = problems(text(date=b"0 0 " + extra))
    assert "extra field" in problem
    assert not is_readable(text(date=b"0 0 " + extra))


@pytest.mark.parametrize(
    "stored", [b"", b"x", MANIFEST + b"\na\n0 0", MANIFEST + b"\na\n0 0\nfile", b"g" + text()[1:]]
)
def test_a_text_without_the_lines_of_a_changeset_is_refused(stored: bytes) -> None:
    (problem,) = problems(stored)
    assert "no manifest, user, date and message" in problem
    assert not is_readable(stored)


def test_any_bytes_are_a_message() -> None:
    message = bytes(range(256))
    assert encoding.tolocal(message)
    assert list(problems(text(message=message, files=b""))) == []


def test_each_field_is_named_with_the_changeset() -> None:
    class Made:
        def stored_texts(self) -> list[tuple[str, bytes]]:
            return [("1" * 40, text(b"", b"nan 0 x")), ("2" * 40, text())]

        def markers(self) -> list[Marker]:
            return [Marker("3" * 40, (math.nan, 0)), Marker("4" * 40, (0.0, 0), b"alice")]

    sentences = list(Metadata().check(Made()))  # type: ignore[arg-type]
    assert [line.split(" ")[0] for line in sentences[:3]] == ["1" * 12] * 3
    (of_a_marker,) = sentences[3:]
    assert of_a_marker.startswith("the obsolescence marker of 333333333333 has the date nan 0")
    assert ["user" in sentences[0], "date" in sentences[1], "extra" in sentences[2]] == [True] * 3


@pytest.mark.parametrize("date", [(0.0, 0), (1764288000.5, -18000), (-315619200.0, 43200)])
@pytest.mark.parametrize("user", [b"", b"alice", b"\xc3\xa9 <e@example.org>"])
def test_a_marker_that_core_writes_is_accepted(date: tuple[float, int], user: bytes) -> None:
    assert marker_problem(Marker("1" * 40, date, user)) is None


@pytest.mark.parametrize(
    "date", [(math.nan, 0), (math.inf, 0), (-math.inf, 0), (2.0**31, 0), (0.0, 86400)]
)
def test_a_marker_with_a_date_that_is_none_is_refused(date: tuple[float, int]) -> None:
    assert "the date" in (marker_problem(Marker("1" * 40, date)) or "")


def test_a_marker_with_a_user_of_several_lines_is_refused() -> None:
    problem = marker_problem(Marker("1" * 40, (0.0, 0), b"alice\nobsolete:    bad"))
    assert problem is not None
    assert "a control character in the user" in problem


@pytest.mark.parametrize("node", [b"\xff" * 20, b"1" * 32, b"1" * 19, b""])
def test_a_marker_with_the_name_of_no_changeset_is_refused(node: bytes) -> None:
    problem = marker_problem(Marker("1" * 40, (0.0, 0), nodes=(b"1" * 20, node)))
    assert problem is not None
    assert f"of {len(node)} bytes, which no repository has" in problem
    assert marker_problem(Marker("1" * 40, (0.0, 0), nodes=(b"1" * 20, bytes(20)))) is None

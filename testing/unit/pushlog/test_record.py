"""The canonical line of a record, and lines of hostile origin."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog.record import Heads, hash_of, parse
from testing.support.pushlog_records import NODE, record


def test_a_line_is_read_as_it_was_written() -> None:
    push = record()
    line = push.line()
    assert parse(line) == push
    assert parse(line).line() == line
    assert b"\n" not in line
    assert line.isascii()


def test_the_hash_names_the_line() -> None:
    assert hash_of(record().line()) != hash_of(record(user="bob").line())
    assert len(hash_of(b"")) == 64


def test_the_digest_of_heads_knows_no_order() -> None:
    assert Heads.digest_of(["b", "a"]) == Heads.digest_of(["a", "b"])
    assert Heads.digest_of([]) != Heads.digest_of(["a"])


def changed(**changes: Any) -> bytes:
    data = json.loads(record().line()) | changes
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        changed(v=2),
        changed(v=True),
        changed(id=0),
        changed(id=True),
        changed(id="1"),
        changed(time=-1),
        changed(epoch=0),
        changed(repository="x"),
        changed(repository="7D" * 16),
        changed(kind="pull"),
        changed(user="a\nb"),
        changed(user="é"),
        changed(user="x" * 257),
        changed(key=None),
        changed(client=["192.0.2.7"]),
        changed(previous="0" * 63),
        changed(changesets=[NODE[:-1]]),
        changed(changesets=NODE),
        changed(changesets={NODE: 1}),
        changed(heads=None),
        changed(heads={"gone": [], "new": []}),
        changed(phases=[[NODE, None, "hidden"]]),
        changed(phases=[[NODE, None]]),
        changed(bookmarks=[["@", None, "tip"]]),
        changed(bookmarks=[[1, None, NODE]]),
        changed(markers=["0"]),
        changed(markers=["zz"]),
        changed(verdicts=[]),
        changed(verdicts={"x": 1}),
        changed(more=1),
        record().line() + b" ",
        record().line().replace(b'"epoch":1,', b'"epoch":1, '),
        record().line().replace(b'"v":1', b'"v":1.0'),
        record().line().replace(b'"epoch":1,', b'"epoch":1,"epoch":1,'),
        record().line().replace(b'"alice"', b'"\\u0061lice"'),
    ],
)
def test_a_line_of_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(PushlogError) as refused:
        parse(line)
    assert len(str(refused.value)) < 400


def test_a_line_of_a_newer_release_says_so() -> None:
    with pytest.raises(PushlogError, match="version 2, expected 1; a newer release wrote it"):
        parse(changed(v=2))

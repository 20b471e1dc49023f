"""Changes past a push log are seen in the heads, and found by the records."""

from __future__ import annotations

from typing import Any

import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import unrecorded
from hgfleet.pushlog.record import FIRST, Heads, Record
from hgfleet.pushlog.unrecorded import Difference, difference, problem

A, B, C, D = (letter * 40 for letter in "abcd")
LINE = {A: (), B: (A,), C: (B,), D: (C,)}


def record(number: int, kind: str, *nodes: str, heads: tuple[str, ...] = ()) -> Record:
    """Return a record with the digest of these heads after it."""
    more: dict[str, Any] = {"changesets": nodes, "heads": Heads(digest=Heads.digest_of(heads))}
    return Record(number, "7d" * 16, kind, "alice", 0, FIRST, **more)


PUSH_AB = record(1, "push", A, B, heads=(B,))
ADOPT_A = record(1, "adoption", heads=(A,))
PUSH_B = record(2, "push", B, heads=(B,))


@pytest.mark.parametrize(
    ("last", "heads", "changesets", "from_start", "expected"),
    [
        (PUSH_AB, (B,), 2, True, None),
        (PUSH_AB, (C,), 3, False, "its store has other heads than after record 1 of its push log"),
        (PUSH_AB, (), 0, True, "its store has other heads than after record 1 of its push log"),
        (None, (), 0, True, None),
        (None, (A,), 1, False, None),
        (None, (A,), 1, True, "its store has 1 changesets, and its push log has no record"),
    ],
)
def test_heads_tell_whether_the_log_goes_on(
    last: Record | None,
    heads: tuple[str, ...],
    changesets: int,
    from_start: bool,
    expected: str | None,
) -> None:
    digest = Heads.digest_of(heads)
    assert problem(last, digest, changesets=changesets, from_start=from_start) == expected


def some(*nodes: str) -> dict[str, tuple[str, ...]]:
    return {node: LINE[node] for node in nodes}


@pytest.mark.parametrize(
    ("records", "present", "gone", "added"),
    [
        ([PUSH_AB], (A, B), (), ()),
        ([PUSH_AB], (A, B, C, D), (), (C, D)),
        ([PUSH_AB], (A,), (B,), ()),
        ([PUSH_AB, record(2, "strip", B, heads=(A,))], (A, B), (), (B,)),
        ([ADOPT_A, PUSH_B], (A, B, C), (), (C,)),
        ([ADOPT_A], (A, B, C), (), (B, C)),
        ([record(1, "adoption")], (A,), (), (A,)),
        ([], (A,), (), (A,)),
    ],
)
def test_records_name_what_passed_by(
    records: list[Record], present: tuple[str, ...], gone: tuple[str, ...], added: tuple[str, ...]
) -> None:
    assert difference(records, some(*present)) == Difference(gone, added)


@pytest.mark.parametrize("present", [(A,), ()])
def test_an_adoption_leaves_open_what_is_missing(present: tuple[str, ...]) -> None:
    with pytest.raises(PushlogError, match="begins with an adoption"):
        difference([ADOPT_A, PUSH_B], some(*present))


def test_changesets_between_adopted_ones_are_no_state_of_the_log() -> None:
    history = {A: (), C: (A,), B: (A,), D: (B,)}
    with pytest.raises(PushlogError, match="begins with an adoption"):
        difference([ADOPT_A, PUSH_B], history)


def test_heads_of_some_changesets() -> None:
    history = {A: (), B: (A,), C: (A,), D: (B, C)}
    assert unrecorded.heads(history, history) == {D}
    assert unrecorded.heads(history, (A, B, C)) == {B, C}
    assert unrecorded.heads(history, ()) == set()

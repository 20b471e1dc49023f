"""Comparison of a mirror's repository with the primary's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hgfleet.replication.mirror.verify import Finding, judge
from hgfleet.replication.protocol import snapshot
from hgfleet.replication.protocol.snapshot import State

NODE, OTHER = "5f" * 20, "6e" * 20
STATE = State(
    repository="7d" * 16,
    id=3,
    hash="c1" * 32,
    heads=(NODE,),
    phases={"public": (NODE,)},
    bookmarks=(("@", NODE),),
    markers=("00ff",),
)


def _judge(here: State, there: State = STATE) -> tuple[Finding, str]:
    return judge(here.digests(), there.digests())


def test_equal_states_are_equal() -> None:
    assert _judge(STATE) == (Finding.EQUAL, "is equal at record 3")


@pytest.mark.parametrize(
    ("here", "finding", "text"),
    [
        (replace(STATE, id=2, heads=()), Finding.BEHIND, "is at record 2, the primary at 3"),
        (replace(STATE, id=0, repository=""), Finding.BEHIND, "is at record 0"),
        (replace(STATE, id=4), Finding.AHEAD, "has record 4, the primary ends with 3"),
        (replace(STATE, repository="8e" * 16), Finding.DIFFERENT, "belongs to another repository"),
        (replace(STATE, hash="d2" * 32), Finding.DIFFERENT, "in push log"),
        (replace(STATE, heads=(OTHER,)), Finding.DIFFERENT, "at record 3 in heads"),
        (replace(STATE, phases={}), Finding.DIFFERENT, "in phases"),
        (replace(STATE, phases={"secret": (NODE,)}), Finding.DIFFERENT, "in phases"),
        (replace(STATE, bookmarks=()), Finding.DIFFERENT, "in bookmarks"),
        (replace(STATE, markers=()), Finding.DIFFERENT, "in markers"),
        (replace(STATE, markers=(), heads=()), Finding.DIFFERENT, "in heads, markers"),
    ],
)
def test_a_difference_is_named(here: State, finding: Finding, text: str) -> None:
    verdict, sentence = _judge(here)
    assert verdict is finding
    assert text in sentence


def test_the_order_of_a_state_makes_no_difference() -> None:
    first = replace(STATE, heads=(NODE, OTHER), markers=("00", "ff"))
    other = replace(STATE, heads=(OTHER, NODE), markers=("ff", "00", "ff"))
    assert first.digests() == other.digests()


def test_a_state_comes_back_as_it_was_sent() -> None:
    assert snapshot.from_json(STATE.to_json()) == STATE
    assert snapshot.digests_from_json(STATE.digests().to_json()) == STATE.digests()


@pytest.mark.parametrize(
    "change",
    [
        {"id": "3"},
        {"id": -1},
        {"hash": "c1"},
        {"repository": "../x"},
        {"heads": ["x"]},
        {"heads": 1},
        {"phases": {"draft": [NODE]}},
        {"phases": {"unknown": [NODE]}},
        {"phases": [NODE]},
        {"bookmarks": [["@"]]},
        {"bookmarks": [[1, NODE]]},
        {"markers": ["0"]},
        {"more": 1},
    ],
)
def test_another_state_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        snapshot.from_json({**STATE.to_json(), **change})

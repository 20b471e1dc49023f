from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hgfleet.bundles.decide.manifest import Entry
from hgfleet.steering import selection
from hgfleet.steering.selection import Objects

GONE = "the answer is 404"


@pytest.mark.parametrize(
    ("answers", "is_the_endpoints"),
    [
        ([], False),
        ([""], False),
        ([GONE], False),
        (["", GONE], False),
        ([selection.REFUSED], True),
        ([selection.REFUSED] * 3, True),
        ([selection.REFUSED, ""], False),
        (["", selection.REFUSED, selection.REFUSED], False),
        # Only a good answer is a witness: a 404 may come from a cache.
        ([GONE, selection.REFUSED], True),
        ([GONE, selection.REFUSED, ""], False),
        (["the answer is 500"], True),
        (["the answer is 500", ""], False),
        (["after 1 bytes: no answer in time", GONE], True),
        (["it has 4 bytes instead of 5"], False),
        (["the answer is 416"], False),
    ],
)
def test_an_error_is_the_endpoints_if_nothing_answers(
    answers: list[str], is_the_endpoints: bool
) -> None:
    assert selection.is_closed(answers) == is_the_endpoints


@pytest.mark.parametrize(
    ("status", "length", "problem"),
    [
        (200, 5, None),
        (206, 5, None),
        (200, 4, "it has 4 bytes instead of 5"),
        (403, 0, selection.REFUSED),
        (404, 0, "the answer is 404"),
        (410, 0, "the answer is 410"),
    ],
)
def test_headers_tell_what_is_wrong_with_an_object(
    status: int, length: int, problem: str | None
) -> None:
    if problem is None:
        selection.classify(status, length, 5)
    else:
        with pytest.raises(selection.ObjectError, match=f"^{problem}$"):
            selection.classify(status, length, 5)


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 503])
def test_any_other_answer_may_be_the_endpoints(status: int) -> None:
    with pytest.raises(selection.ObjectError, match=f"^the answer is {status}$") as raised:
        selection.classify(status, 5, 5)
    assert selection.may_be_endpoints(str(raised.value))


def entry(name: str, size: int = 1) -> Entry:
    return Entry(name, "zstd-v2", "", size, 1, datetime(2026, 11, 20, tzinfo=UTC))


def objects(count: int, asked: int = 0) -> Objects:
    made = Objects()
    for number in range(count):
        state = made.add(entry(f"u{number}"))
        if asked:
            made.answered(state, asked)
            made.judge(state)
    return made


def test_objects_that_answered_well_a_moment_ago_are_witnesses_of_a_403() -> None:
    known = Objects()
    states = {name: known.add(entry(name)) for name in ("refused", "old", "dead", "new", "late")}
    for name, asked in (("refused", 7), ("old", 5), ("dead", 6), ("late", 6)):
        known.answered(states[name], asked)
    states["dead"].headers = GONE
    order = [states[name] for name in ("late", "old", "new", "dead")]
    assert known.witnesses([states["refused"]]) == order
    # The object that gave content last comes before all.
    states["old"].served = 3
    order = [states[name] for name in ("old", "late", "new", "dead")]
    assert known.witnesses([states["refused"]]) == order
    assert len(objects(50, asked=1).witnesses([])) == selection.OTHERS


@pytest.mark.parametrize("count", [1, 7, 200])
def test_every_object_has_its_turn(count: int) -> None:
    known = objects(count, asked=1)
    for number in range(2, 2 + 2 * selection.ROUNDS):
        due = known.batch(number, is_up=True)
        assert len(due) <= selection.DUE
        for state in due:
            known.answered(state, number)
    assert min(state.asked for state in known) > 1


def test_an_object_that_answered_lately_is_not_due() -> None:
    known = objects(4, asked=1)
    assert known.batch(selection.ROUNDS, is_up=True) == []
    assert len(known.batch(selection.ROUNDS + 1, is_up=True)) == 4
    # While the endpoint is down, some are requested in each round: one may answer.
    assert len(known.batch(2, is_up=False)) == 1
    new = known.add(entry("new"))
    assert known.batch(2, is_up=True) == [new]


def test_new_objects_leave_room_for_those_that_are_due() -> None:
    known = objects(selection.DUE, asked=1)
    for number in range(2 * selection.NEW):
        known.add(entry(f"new{number}"))
    batch = known.batch(1 + selection.ROUNDS, is_up=True)
    assert len([item for item in batch if not item.asked]) == selection.NEW
    assert len([item for item in batch if item.asked]) == selection.DUE


def test_urgent_objects_are_read_first_and_then_those_that_wait_longest() -> None:
    known = Objects()
    for name, size, compared, is_urgent, headers in (
        ("s", 1, 3, False, ""),
        ("l", 9, 2, True, ""),
        ("o", 5, 2, False, ""),
        ("g", 5, 0, True, GONE),
        ("f", 4, 0, False, ""),
    ):
        state = known.add(entry(name, size), is_urgent=is_urgent)
        state.compared, state.headers = compared, headers
        known.answered(state, 1)
        known.judge(state)
        state.failed = 5 if name == "f" else 0
    known.add(entry("u", 5), is_urgent=True)
    order = []
    while (due := known.next_to_read(5)) is not None:
        order.append(due.entry.url)
        due.compared, due.is_urgent = 5, False
        known.judge(due)
    assert order == ["l", "o", "s"]
    # An object that failed in this round is read in the next round.
    due = known.next_to_read(6)
    assert due is not None
    assert due.entry.url == "f"


def test_the_order_of_reading_stays_small_and_right_through_many_changes() -> None:
    known = objects(20, asked=1)
    for number in range(2, 300):
        state = known.next_to_read(number)
        assert state is not None
        assert state.compared == min(item.compared for item in known if item.is_readable)
        state.compared = number
        known.judge(state)
        flipped = next(item for item in known if item.entry.url == f"u{number % 20}")
        flipped.headers = "" if flipped.headers else GONE
        known.judge(flipped)
        if number % 7 == 0:
            again = known.add(flipped.entry)
            known.answered(again, number)
            known.judge(again)
        if not any(item.is_readable for item in known):
            break
    assert len(known._to_read) <= 2 * len(known) + selection.REQUESTS
    assert known.dead.keys() == {item.entry.url for item in known if item.headers}


def test_findings_change_their_version_and_nothing_else_does() -> None:
    known = Objects()
    state = known.add(entry("u", 7))
    known.answered(state, 1)
    known.judge(state)
    assert (known.version, known.total) == (0, 7)
    state.compared = 1
    known.judge(state)
    assert (known.version, known.read) == (1, {"u"})
    state.compared = 2
    known.judge(state)
    assert known.version == 1
    state.headers = GONE
    known.judge(state)
    assert (known.version, known.dead) == (2, {"u": GONE})
    known.remove(state.entry)
    assert (known.version, known.dead, known.read, known.total) == (3, {}, set(), 0)
    assert not known.holds(state)

"""Lines of events that wait for a receiver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hgfleet.replication.protocol.events import Event
from hgfleet.webhooks import lines
from hgfleet.webhooks.lines import Lines, Place, Waiting

if TYPE_CHECKING:
    import pytest

A, B = "a" * 32, "b" * 32


def waiting(number: int, repository: str = A, *, is_event: bool = True, era: int = 1) -> Waiting:
    event = Event("team/tool", repository, number, is_public=True, body=json.dumps(number).encode())
    reply = f"ack.{era}.{number}" if is_event else ""
    return Waiting(event, Place(era, is_event, number), float(number), reply)


def test_a_line_is_in_order_and_a_letter_is_before_its_events() -> None:
    made = Lines()
    assert [made.add(waiting(number)) for number in (2, 1, 3)] == [True, False, False]
    assert made.add(waiting(4, B))
    first = made.take(A)
    assert first is not None
    assert first.event.number == 1
    # The first is on its way already.
    assert not made.add(waiting(9, is_event=False))
    taken = []
    while (event := made.take(A)) is not None:
        taken.append(event.event.number)
        made.done(event)
    assert taken == [9, 2, 3]
    # The line has ended: the next event begins another line.
    assert made.add(waiting(5))


def test_what_the_broker_sends_again_is_here_once() -> None:
    made = Lines()
    assert made.add(waiting(1))
    again = waiting(1)
    again.reply = "ack.again"
    assert not made.add(again)
    assert made.replies() == ["ack.again"]
    event = made.take(A)
    assert event is not None
    assert made.take(A) is None
    assert not made.was_done(A, 1)
    made.done(event)
    assert made.was_done(A, 1)
    assert not made.was_done(A, 2)
    assert not made.was_done(B, 1)


def test_events_that_are_over_are_not_held_any_longer() -> None:
    """Until the broker knows of their end it may have them, and so they count as unknown."""
    made = Lines()
    made.add(waiting(1))
    made.add(waiting(2, B, is_event=False))
    event = made.take(A)
    assert event is not None
    assert made.replies() == ["ack.1.1"]
    event.is_over = True
    assert made.replies() == []


def test_the_next_event_is_the_first_that_is_not_done() -> None:
    made = Lines()
    assert made.next_event == 0
    for number, repository in ((5, A), (6, B), (7, B)):
        made.add(waiting(number, repository))
    assert made.next_event == 5
    for repository in (A, B, B):
        event = made.take(repository)
        assert event is not None
        made.done(event)
    assert made.next_event == 8


def test_in_a_stream_that_was_made_anew_numbers_begin_again() -> None:
    made = Lines()
    made.add(waiting(1))
    made.add(waiting(2))
    made.begin_era()
    # The stream has none that was here: all of its events are new.
    assert made.next_event == 1
    assert made.replies() == []
    assert not made.add(waiting(1, era=2))
    assert made.replies() == ["ack.2.1"]
    taken = []
    while (event := made.take(A)) is not None:
        taken.append(event.reply)
        made.done(event)
        assert made.was_done(A, 1) == (event.reply == "ack.2.1")
    assert taken == ["ack.1.1", "ack.1.2", "ack.2.1"]


def test_a_bounded_number_of_repositories_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_REMEMBERED", 1)
    made = Lines()
    for number, repository in ((1, A), (2, B)):
        made.add(waiting(number, repository))
        event = made.take(repository)
        assert event is not None
        made.done(event)
    assert (made.was_done(A, 1), made.was_done(B, 2)) == (False, True)


def test_the_state_tells_how_much_waits_since_when_and_why() -> None:
    made = Lines()
    assert made.state() == {"waiting": 0, "oldest": 0.0, "reason": ""}
    for number in (3, 2):
        made.add(waiting(number, A if number == 2 else B))
    event = made.take(A)
    assert event is not None
    event.attempts, event.reason = 2, "status 500"
    assert made.state() == {"waiting": 2, "oldest": 2.0, "reason": "status 500"}

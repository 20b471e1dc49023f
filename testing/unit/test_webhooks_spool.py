"""The spool of webhooks: events that wait, and dead ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication.events import Event
from hgfleet.webhooks import spool
from hgfleet.webhooks.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


A, B = "a" * 32, "b" * 32
NOW = 1_795_440_000.0


def event(number: int = 1, repository: str = A, path: str = "team/tool", **more: Any) -> Event:
    fields = {"is_public": True, "body": json.dumps({"push": number}).encode()} | more
    return Event(path, repository, number, **fields)


@pytest.fixture
def spooled(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path)
    yield made
    made.close()


def test_an_event_arrives_once(spooled: Spool) -> None:
    assert spooled.is_new()
    assert spooled.receive(event(1), ["ci", "chat"], NOW)
    assert not spooled.receive(event(1), ["ci", "chat"], NOW)
    assert spooled.receive(event(3), ["ci"], NOW)
    # Older than the last one: the broker repeats itself.
    assert not spooled.receive(event(2), ["ci"], NOW)
    assert not spooled.is_new()
    assert {name: count.waiting for name, count in spooled.counts().items()} == {"ci": 2, "chat": 1}


def test_a_push_of_a_later_epoch_is_another_one_although_its_number_is_lower(
    spooled: Spool,
) -> None:
    """A promotion gave up pushes 2 and 3."""
    later = {"epoch": 2, "body": b'{"epoch":2}'}
    for number in (1, 2, 3):
        assert spooled.receive(event(number), ["ci"], NOW)
    assert spooled.receive(event(2, **later), ["ci"], NOW)
    assert not spooled.receive(event(2, **later), ["ci"], NOW)
    assert not spooled.receive(event(4), ["ci"], NOW)
    assert spooled.receive(event(3, **later), ["ci"], NOW)
    found = []
    while lines := spooled.lines("ci"):
        delivery = spooled.begin("ci", lines[0])
        assert delivery is not None
        found.append(delivery.event.id)
        spooled.delivered(delivery)
    # Those that wait give way to the pushes of their numbers.
    assert found == [f"{A}.1", f"{A}.2.2", f"{A}.3.2"]


def test_repositories_are_lines_and_their_order_is_that_of_pushes(spooled: Spool) -> None:
    for number in (1, 2):
        spooled.receive(event(number), ["ci"], NOW)
        spooled.receive(event(number, B, "b"), ["ci"], NOW)
    assert [(line.repository, line.number) for line in spooled.lines("ci")] == [(A, 1), (B, 1)]
    first = spooled.begin("ci", spooled.lines("ci")[0])
    assert first is not None
    assert (first.event, first.attempts) == (event(1), 1)
    spooled.failed(first, NOW + 60, "status 500")
    assert [(line.repository, line.number) for line in spooled.lines("ci")] == [(B, 1), (A, 1)]
    spooled.delivered(first)
    assert [(line.repository, line.number) for line in spooled.lines("ci")] == [(A, 2), (B, 1)]
    assert spooled.begin("ci", spool.Line(A, 1, NOW)) is None


def test_attempts_and_order_outlive_the_daemon(spooled: Spool, tmp_path: Path) -> None:
    spooled.receive(event(1), ["ci"], NOW)
    line = spooled.lines("ci")[0]
    assert spooled.begin("ci", line) is not None
    again = Spool(tmp_path)
    second = again.begin("ci", line)
    assert second is not None
    assert second.attempts == 2
    again.close()


def test_dead_deliveries_are_tried_again_or_dropped(spooled: Spool) -> None:
    for number in (1, 2, 3):
        spooled.receive(event(number), ["ci"], NOW)
        delivery = spooled.begin("ci", spooled.lines("ci")[0])
        assert delivery is not None
        spooled.failed(delivery, None, "status 404")
    assert spooled.lines("ci") == []
    dead = spooled.dead("ci")
    assert [(one.event.number, one.attempts, one.reason) for one in dead] == [
        (number, 1, "status 404") for number in (1, 2, 3)
    ]
    assert spooled.dead("chat") == []
    assert spooled.dead() == dead
    spooled.retry(dead[:1], NOW + 100)
    assert spooled.lines("ci") == [spool.Line(A, 1, NOW + 100)]
    spooled.drop(dead[1:2])
    assert [one.event.number for one in spooled.dead()] == [3]
    assert spooled.counts()["ci"].dead == 1


def test_the_events_of_a_removed_receiver_leave(spooled: Spool) -> None:
    spooled.receive(event(1), ["ci", "chat"], NOW)
    assert spooled.keep(["ci"]) == 1
    assert spooled.counts().keys() == {"ci"}


def test_a_receiver_that_is_away_fills_no_disk(
    spooled: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MOST_WAITING", 3)
    monkeypatch.setattr(spool, "MOST_DEAD", 2)
    for number in range(1, 8):
        spooled.receive(event(number), ["ci"], NOW + number)
    assert spooled.counts()["ci"].waiting == 3
    # Of dead ones the oldest are dropped.
    assert [one.event.number for one in spooled.dead()] == [6, 7]
    assert "more than 3 events wait" in spooled.dead()[0].reason

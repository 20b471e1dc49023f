"""The feed of push events: requests, the newest events, and the number of clients."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from hgfleet.replication.events import feed
from hgfleet.replication.events.feed import Last, Listeners, Newest, RefusedError
from hgfleet.replication.protocol.events import Event

STREAM = "0123456789ab"


def event(number: int, path: str = "team/tool", body: bytes = b"{}") -> Event:
    return Event(path, "7d" * 16, number, is_public=True, body=body)


def head(target: str = "/api/events", *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: hg", *fields]).encode("latin-1")


def test_a_request_names_repositories_and_the_last_event() -> None:
    made = feed.parse(
        head(
            "/api/events?repository=team/tool&repository=/core/&other=1",
            "X-Real-IP: 192.0.2.7",
            f"last-event-id: {STREAM}-42",
        )
    )
    assert made.repositories == {"team/tool", "core"}
    assert (made.last, made.address) == (Last(STREAM, 42), "192.0.2.7")
    assert made.takes("team/tool")
    assert not made.takes("other")
    everything = feed.parse(head())
    assert (everything.last, everything.repositories) == (None, frozenset())
    assert everything.takes("other")


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (b"", HTTPStatus.BAD_REQUEST),
        (b"GET /\xff HTTP/1.1", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/2", HTTPStatus.BAD_REQUEST),
        (b"GET http://other/ HTTP/1.1", HTTPStatus.BAD_REQUEST),
        (head(method="POST"), HTTPStatus.METHOD_NOT_ALLOWED),
        (head("/api/events?repository=../etc"), HTTPStatus.NOT_FOUND),
        (head("/api/events?repository="), HTTPStatus.NOT_FOUND),
        (head("/api/events?" + "repository=a&" * 101), HTTPStatus.BAD_REQUEST),
    ],
)
def test_other_requests_are_refused(wrong: bytes, status: HTTPStatus) -> None:
    with pytest.raises(RefusedError) as caught:
        feed.parse(wrong)
    assert caught.value.status is status
    answer = feed.refusal(caught.value)
    assert answer.startswith(f"HTTP/1.1 {status.value} ".encode())
    length = int(answer.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    assert len(answer.partition(b"\r\n\r\n")[2]) == length


@pytest.mark.parametrize("text", ["x", "42", f"{STREAM}-", f"{STREAM}--1", "-1", "Z-1"])
def test_the_name_of_no_event_is_that_of_a_lost_one(text: str) -> None:
    made = feed.parse(head("/api/events", f"Last-Event-ID: {text}"))
    newest = Newest()
    newest.restart(STREAM, 1)
    assert made.last is not None
    assert not newest.has(made.last)


def test_a_client_goes_on_where_it_was() -> None:
    newest = Newest()
    newest.restart(STREAM, 5)
    for number in (5, 6, 7):
        newest.add(number, event(number))
    newest.add(8, None)
    newest.add(6, event(6))
    assert newest.end == 8
    assert [kept.number for kept in newest.after(5)] == [6, 7]
    assert list(newest.after(8)) == []
    assert newest.has(Last(STREAM, 8))
    assert newest.has(Last(STREAM, 4))
    # Before the first that was read, after the last, and of another stream.
    assert not newest.has(Last(STREAM, 3))
    assert not newest.has(Last(STREAM, 9))
    assert not newest.has(Last("f" * 12, 6))


def test_old_events_are_dropped_and_a_client_learns_of_it() -> None:
    newest = Newest(most=2)
    newest.restart(STREAM, 1)
    for number in (1, 2, 3, 4):
        newest.add(number, event(number))
    assert [kept.number for kept in newest.after(0)] == [3, 4]
    assert newest.has(Last(STREAM, 2))
    assert not newest.has(Last(STREAM, 1))
    large = Newest(most_bytes=100)
    large.restart(STREAM, 1)
    for number in (1, 2, 3):
        large.add(number, event(number, body=b"x" * 60))
    assert [kept.number for kept in large.after(0)] == [3]


def test_the_number_of_clients_is_bounded() -> None:
    listeners = Listeners(most=3, per_address=2)
    for _ in range(2):
        listeners.join("192.0.2.1")
    with pytest.raises(RefusedError) as caught:
        listeners.join("192.0.2.1")
    assert caught.value.status is HTTPStatus.TOO_MANY_REQUESTS
    listeners.join("192.0.2.2")
    with pytest.raises(RefusedError) as caught:
        listeners.join("192.0.2.3")
    assert caught.value.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert b"Retry-After" in feed.refusal(caught.value)
    listeners.leave("192.0.2.2")
    listeners.join("192.0.2.3")
    assert len(listeners) == 3


def test_an_event_is_one_of_the_stream_whatever_its_text() -> None:
    stored = feed.Stored(7, event(7, body=b'{"a":1}\nid: forged\r\n\r\n'))
    lines = feed.rendered(STREAM, stored).split(b"\n")
    assert lines[:2] == [f"id: {STREAM}-7".encode(), b"event: push"]
    assert lines[2].startswith(b'data: {"a":1} id: forged')
    assert lines[3:] == [b"", b""]

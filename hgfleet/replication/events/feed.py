"""The feed of push events for clients over HTTPS: requests, and the newest events. Pure.

An event of the feed has the name "STREAM-NUMBER": the stream's time of creation, and the event's
number in it. All hosts that serve the feed read the same stream, so a client that connects to
another host continues after the last event that it has seen.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from hgfleet.core.names import path_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hgfleet.replication.protocol.events import Event

MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Number and size of the events that a client can catch up with."""

MOST_REPOSITORIES: Final = 100
"""Repositories in a request."""

MOST_LISTENERS: Final = 64
"""Far fewer than the connections that the proxy opens to a web host: the others are for hg."""

MOST_PER_ADDRESS: Final = 8

_LAST: Final = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,18})")
_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,16}) (/[\x21-\x7e]{0,8000}) HTTP/1\.[01]")


class RefusedError(Exception):
    """A request that gets a status and a sentence instead of events."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Last(NamedTuple):
    """The last event that a client has seen."""

    stream: str
    number: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request for events: of some repositories or of all, after an event or from now on."""

    repositories: frozenset[str]
    last: Last | None
    address: str

    def takes(self, path: str) -> bool:
        """Whether the client asked for events of the repository that has this path now."""
        return not self.repositories or path in self.repositories


def parse(head: bytes) -> Request:
    """Read the head of a request, as nginx passes it on; raises RefusedError."""
    try:
        line, *fields = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the request is not ASCII") from error
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the request is no HTTP")
    if match[1] != "GET":
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "events are read with GET")
    headers = {name.strip().lower(): text.strip() for name, _, text in map(_parted, fields)}
    return Request(
        _repositories(urlsplit(match[2]).query), _last(headers), headers.get("x-real-ip", "")
    )


def _parted(field: str) -> tuple[str, str, str]:
    return field.partition(":")


def _repositories(query: str) -> frozenset[str]:
    try:
        asked = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_REPOSITORIES)
    except ValueError as error:
        sentence = f"a request names at most {MOST_REPOSITORIES} repositories"
        raise RefusedError(HTTPStatus.BAD_REQUEST, sentence) from error
    paths = frozenset(path.strip("/") for path in asked.get("repository", ()))
    for path in paths:
        if path_problem(path):
            raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no repository {path[:200]!a} here")
    return paths


def _last(headers: Mapping[str, str]) -> Last | None:
    text = headers.get("last-event-id", "")
    if not text:
        return None
    match = _LAST.fullmatch(text)
    # No stream has an event with any other name.
    return Last(match[1], int(match[2])) if match else Last("", 0)


class Stored(NamedTuple):
    """An event and its number in the stream."""

    number: int
    event: Event


class Newest:
    """The newest events of a stream, in their order."""

    def __init__(self, most: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self.stream = ""
        self.end = 0
        """The number of the last message that was read from the stream."""
        self.begin = 0
        """The number after which all events are here."""
        self._most, self._most_bytes = most, most_bytes
        self._events: deque[Stored] = deque()
        self._bytes = 0

    def restart(self, stream: str, begin: int) -> None:
        """Forget all events, because another stream is read, from message `begin` on."""
        self.stream, self.begin, self.end = stream, begin - 1, begin - 1
        self._events.clear()
        self._bytes = 0

    def add(self, number: int, event: Event | None) -> None:
        """Add the next message of the stream; None stands for a message that no client may read."""
        if number <= self.end:
            return
        self.end = number
        if event is None:
            return
        self._events.append(Stored(number, event))
        self._bytes += len(event.body)
        while len(self._events) > self._most or self._bytes > self._most_bytes:
            dropped = self._events.popleft()
            self.begin = dropped.number
            self._bytes -= len(dropped.event.body)

    def has(self, last: Last) -> bool:
        """Whether all events after this event are here."""
        return last.stream == self.stream and self.begin <= last.number <= self.end

    def after(self, number: int) -> Iterator[Stored]:
        """Yield the events after a number, the newest last."""
        newer = []
        for stored in reversed(self._events):
            if stored.number <= number:
                break
            newer.append(stored)
        yield from reversed(newer)


class Listeners:
    """Number of clients that listen, by address."""

    def __init__(self, most: int = MOST_LISTENERS, per_address: int = MOST_PER_ADDRESS) -> None:
        self._most, self._per_address = most, per_address
        self._clients: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self._clients.values())

    def join(self, address: str) -> None:
        """Add a client; raises RefusedError if there are too many."""
        if self._clients.get(address, 0) >= self._per_address:
            raise RefusedError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{self._per_address} connections from {address} listen already; a connection may "
                "ask for several repositories",
            )
        if len(self) >= self._most:
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many clients listen; try again later"
            )
        self._clients[address] = self._clients.get(address, 0) + 1

    def leave(self, address: str) -> None:
        """Remove a client."""
        self._clients[address] -= 1
        if not self._clients[address]:
            del self._clients[address]


def rendered(stream: str, stored: Stored) -> bytes:
    """Return an event in the form of text/event-stream; its body is a line of JSON."""
    name = f"id: {stream}-{stored.number}\nevent: push\ndata: ".encode("ascii")
    return name + stored.event.body.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n"


def gap(stream: str, number: int) -> bytes:
    """Return the event that reports missing events; the client then reads the push logs."""
    return f"id: {stream}-{number}\nevent: gap\ndata: {{}}\n\n".encode("ascii")


def beginning(stream: str, number: int) -> bytes:
    """Return the first bytes for a client: where to continue after a lost connection, and when."""
    return f"retry: 2000\nid: {stream}-{number}\n\n".encode("ascii")


def heartbeat(stream: str, number: int) -> bytes:
    """Return the bytes for quiet times; after a reconnect the client continues after `number`."""
    return f": alive\nid: {stream}-{number}\n\n".encode("ascii")


def refusal(error: RefusedError) -> bytes:
    """Return the whole answer to a request that is refused."""
    body = f"{error.sentence}\n".encode("ascii", "replace")
    lines = [
        f"HTTP/1.1 {error.status.value} {error.status.phrase}",
        "Content-Type: text/plain; charset=us-ascii",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(body)}",
        *(["Allow: GET"] if error.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        *(["Retry-After: 30"] if error.status in _RETRIED else []),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


_RETRIED: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})

ACCEPTED: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    b"X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n"
)
"""The head of the answer with events."""

"""A renderer on loan to a request, which calls it like hgweb: as a WSGI application.

The frames that come decide whether the renderer is lent again, since it reads hostile repositories.
A data stream also sends notes and asks questions (`Replies`).
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from hgfleet.web.engine import frames
from hgfleet.web.engine.opened_repositories import UnavailableRepositoryError
from hgfleet.web.rendering import stream_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from hgfleet.web.engine.places import Place
    from hgfleet.web.rendering.budgets import Budget

SILENCE_SECONDS: Final = 60.0
"""The longest time between two frames of a renderer. Its processor time is bounded elsewhere; a
renderer that is silent for longer waits for a disk."""


class RenderingError(Exception):
    """hgweb failed in a renderer; the message is a line for the operators."""

    is_told = False
    """Whether the answer has an error for the client, so that it may end like a whole answer."""


class ArgumentsError(RenderingError):
    """hgweb failed in a renderer, most likely because of the request's arguments."""


class RefusedAnswerError(Exception):
    """A renderer refused to answer; the message is for the client."""


class LimitError(Exception):
    """The renderer has ended before its answer was complete, most likely above its budget."""

    is_told = False


class DisconnectedError(LimitError):
    """The client disconnected before its answer was complete."""


@dataclass(frozen=True, slots=True)
class Replies:
    """What a worker does with the notes and questions of a data stream."""

    note: Callable[[dict[str, object]], object]
    refusal: Callable[[str], str]
    """The reply to a question: a sentence that refuses, or ""."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a loan.

    `connection` is the client's socket: the renderer is ended when the client disconnects. `spent`
    gets the seconds of processor time of the request. Only a data stream has `replies`.
    """

    limits: Budget
    connection: Any = None
    spent: Callable[[float], None] = lambda _: None
    identity: str = ""
    replies: Replies | None = None


@dataclass(eq=False, slots=True)
class Process:
    """A renderer, as its worker knows it."""

    channel: socket.socket
    pid: int
    readers: Hashable = None
    path: str = ""
    idle_since: float = 0.0

    def is_quiet(self) -> bool:
        """Whether the process is alive and has sent nothing since its last answer."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        return not poll.poll(0)


class Pool(Protocol):
    """The part of the pool of renderers that a loan needs."""

    def number(self) -> int:
        """Return a number for a request."""

    def start(self) -> Process:
        """Start a renderer."""

    def kill(self, process: Process) -> None:
        """End a renderer."""

    def take_back(self, lease: Lease, process: Process) -> None:
        """Keep a renderer for another request."""

    def discard(self, lease: Lease, process: Process) -> None:
        """End a renderer whose request has failed."""


class Lease:
    """A renderer on loan to a request, called as a WSGI application."""

    def __init__(self, pool: Pool, place: Place, terms: Terms) -> None:
        """Made by `Renderers.lend`, which sets the process."""
        self._pool = pool
        self.process: Process | None = None
        self._place = place
        self._terms = terms
        self.is_stream = terms.replies is not None
        self._silence = SILENCE_SECONDS
        self.end = math.inf
        if self.is_stream:
            # The renderer sends nothing while an old client waits for its slot.
            self._silence = stream_limits.hard(terms.limits.seconds)
            self.end = time.monotonic() + self._silence
        self.limit = ""
        """The limit that ended the renderer."""
        self._is_done = False

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterator[bytes]:
        """Answer a request.

        Raises LimitError, RenderingError, RefusedAnswerError, UnavailableRepositoryError, and
        frames.BrokenError for a renderer that sends anything but an answer.
        """
        assert self.process is not None
        body = environ["wsgi.input"].getvalue().decode("latin-1")
        request = {
            "place": self._place,
            "environ": {name: value for name, value in environ.items() if isinstance(value, str)},
            "body": body,
            "id": self._terms.identity,
            "is_stream": self.is_stream,
            "limits": self._terms.limits,
            "number": (number := self._pool.number()),
        }
        try:
            frames.send_json(self.process.channel, frames.REQUEST, number, request)
        except frames.ClosedError:
            # It ended while it was idle; nothing of the request is lost.
            readers = self.process.readers
            self._pool.kill(self.process)
            self.process = self._pool.start()
            self.process.readers = readers
            frames.send_json(self.process.channel, frames.REQUEST, number, request)
        return self._pieces(number, respond)

    def _pieces(self, number: int, respond: Callable[..., Any]) -> Iterator[bytes]:
        order = frames.Sequence(number, is_stream=self.is_stream)
        write: Callable[[bytes], object] | None = None
        while True:
            kind, payload = self._receive(order)
            if kind == frames.PIECE:
                yield payload
            elif kind in (frames.NOTE, frames.ASK):
                self._reply(number, kind, payload)
            elif kind == frames.WRITTEN:
                assert write is not None
                write(payload)
            elif kind == frames.HEAD:
                head = frames.head(payload)
                write = respond(head.status, head.headers)
            else:
                self._finish(frames.end(kind, payload))
                return

    def _reply(self, number: int, kind: bytes, payload: bytes) -> None:
        replies = self._terms.replies
        assert replies is not None
        assert self.process is not None
        if kind == frames.NOTE:
            replies.note(frames.note(payload))
            return
        refusal = replies.refusal(frames.question(payload))
        with contextlib.suppress(frames.ClosedError):
            # The end of the channel is the next thing to receive.
            frames.send_json(self.process.channel, frames.REPLY, number, {"refusal": refusal})

    def _receive(self, order: frames.Sequence) -> tuple[bytes, bytes]:
        assert self.process is not None
        channel = self.process.channel
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        with contextlib.suppress(AttributeError, OSError, ValueError):
            watched = select.POLLRDHUP | select.POLLHUP | select.POLLERR
            poll.register(self._terms.connection.fileno(), watched)
        ready = poll.poll(self._silence * 1000)
        if not ready:
            raise self._limited(f"the renderer said nothing for {self._silence:g} s")
        if channel.fileno() not in [number for number, _ in ready]:
            raise DisconnectedError("the client disconnected")
        try:
            kind, number, payload = frames.receive(channel)
        except frames.ClosedError as problem:
            # The kernel ended it above its budget; for a data stream, it may be any limit.
            if not self.is_stream:
                self._terms.spent(self._terms.limits.cpu_seconds)
            raise self._limited(str(problem)) from problem
        order.check(kind, number)
        return kind, payload

    def _finish(self, end: frames.End) -> None:
        # A failed request ends its renderer, also where the renderer does not say so.
        self._is_done = not end.ends and not end.kind
        self._terms.spent(end.cpu)
        problem: LimitError | RenderingError
        match end.kind:
            case "":
                return
            case "unavailable":
                raise UnavailableRepositoryError(end.cause)
            case "refused":
                raise RefusedAnswerError(end.cause)
            case "limit":
                problem = self._limited(end.cause)
            case "arguments":
                problem = ArgumentsError(end.cause)
            case _:
                problem = RenderingError(end.cause)
        problem.is_told = end.is_told
        raise problem

    def _limited(self, cause: str) -> LimitError:
        self.limit = cause
        return LimitError(cause)

    def disconnect(self) -> None:
        """Close the client's connection, so that the thread that sends to it goes on and ends."""
        self.limit = "time"
        with contextlib.suppress(AttributeError, OSError):
            self._terms.connection.shutdown(socket.SHUT_RDWR)

    def hand_back(self) -> None:
        """Give the renderer back; it is ended if its answer is not complete."""
        process, self.process = self.process, None
        if process is None:
            return
        if self._is_done:
            process.path = self._place.path
            self._pool.take_back(self, process)
        else:
            self._pool.discard(self, process)

"""The limits of a data stream in a renderer, and the error that its client reads at their end.

A clone is under way for minutes, and its client has the first bytes when a limit is reached. An
answer of bundle2 may have an error in the middle of a part: core puts it there when the data of the
part raises an exception, and passes the exception on. So the limits are looked at between two
pieces of a changegroup, where an exception becomes such an error.

Core's compression loses what it holds when its source raises: the client would read an answer that
breaks off, and no error. `_told` therefore ends the source at that place, and keeps the exception:
the renderer says after the last byte that the answer is not whole (`Stream.problem`). hg also reads
such an error only out of a complete response, so a response with the error ends like a whole
response (`Stream.is_told`), and breaks off in every other case.

The kernel enforces the same limits a little later, for code that yields nothing.
"""

from __future__ import annotations

import time
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from mercurial import changegroup, error, extensions, wireprototypes, wireprotov1server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.web.rendering.budgets import Budget

GRACE: Final = 1.1
GRACE_SECONDS: Final = 2.0
"""The kernel ends a stream at its limits times `GRACE`, and so many seconds."""

RESERVE_BYTES: Final = 32 * 1024 * 1024
"""Memory above the limit for the error itself."""


def hard(seconds: float) -> float:
    """Return the time at which the kernel ends a stream whose limit is so many seconds."""
    return seconds * GRACE + GRACE_SECONDS


_EVERY: Final = 16
"""Pieces of a changegroup between two looks at the limits, which take 0.7 us."""

_BUNDLE2: Final = b"HG20"
_INTERRUPT: Final = b"\xff\xff\xff\xff"
_LAST_PIECES: Final = 8
"""Core (bundle2.bundlepart.getchunks, 7.2) yields the interruption, an error in three pieces, and
the end of the part that has failed."""


class ReachedError(Exception):
    """A stream has reached a limit; the message is for the operators."""


class Stream:
    """The data stream that this process computes."""

    def __init__(
        self, limits: Budget, sentence: str, identity: str, reserve: Callable[[], None]
    ) -> None:
        """`sentence` tells a client of the limits; `reserve` adds memory above the limit."""
        self._sentence, self._identity, self._reserve = sentence, identity, reserve
        self._cpu_end = time.process_time() + limits.cpu_seconds
        self._end = time.monotonic() + limits.seconds
        self.problem: Exception | None = None
        """Why the answer that was sent is not whole."""
        self.is_told = False
        """Whether the answer itself has an error for the client."""

    def reached(self) -> str:
        """Return the limit that is reached, "" for none."""
        if time.process_time() > self._cpu_end:
            return "processor time"
        return "time" if time.monotonic() > self._end else ""

    def limited(self, name: str) -> error.Abort:
        """Record that a limit is reached; return the error that the client reads."""
        self.problem = ReachedError(name)
        return error.Abort(self._sentence.encode("ascii"))

    def out_of_memory(self) -> error.Abort:
        """Record that the memory is used up; return the error that the client reads."""
        self._reserve()
        return self.limited("memory")

    def failed(self, problem: Exception) -> error.Abort:
        """Record a failure; return the error that the client reads."""
        self.problem = problem
        return error.Abort(
            b"this server could not make the rest of this answer; its operators find the reason "
            b"as %s" % (self._identity.encode("ascii"))
        )


current: Final[ContextVar[Stream | None]] = ContextVar("hgfleet_data_stream", default=None)
"""The stream of this process; None for pages, and in every other process."""


def _makestream(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    pieces = original(*arguments, **options)
    stream = current.get()
    return pieces if stream is None else _within(stream, pieces)


def _within(stream: Stream, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a changegroup; raises error.Abort at a limit or failure."""
    name, is_full, problem = "", False, None
    try:
        for count, piece in enumerate(pieces):
            if count % _EVERY == 0 and (name := stream.reached()):
                break
            yield piece
    except MemoryError:
        is_full = True
    except error.Abort:
        # A sentence for the client already.
        raise
    except Exception as failure:
        problem = failure
    # Outside of the handler, so that the memory of the frames that failed is free.
    if name:
        raise stream.limited(name)
    if is_full:
        raise stream.out_of_memory()
    if problem is not None:
        raise stream.failed(problem)


def _dispatch(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    response = original(*arguments, **options)
    stream = current.get()
    if stream is not None and isinstance(response, wireprototypes.streamres):
        response.gen = _told(stream, response.gen)
    return response


def _told(stream: Stream, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces of an answer; a failed answer ends after the error that core has put there.

    Its compression then writes out all that it holds.
    """
    last: deque[bytes] = deque(maxlen=_LAST_PIECES)
    is_bundle2 = False
    try:
        for piece in pieces:
            is_bundle2 = is_bundle2 or (not last and piece == _BUNDLE2)
            last.append(piece)
            yield piece
    except Exception as problem:
        stream.is_told = is_bundle2 and _INTERRUPT in last
        if stream.problem is None:
            stream.problem = problem


extensions.wrapfunction(changegroup, "makestream", _makestream)
extensions.wrapfunction(wireprotov1server, "dispatch", _dispatch)

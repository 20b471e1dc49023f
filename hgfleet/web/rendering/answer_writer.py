"""The renderer's side of an answer: its frames, until the request ends.

Objects of a request may outlive it: a `ZipFile` in the frames of a traceback writes the end of its
archive when it is freed. So hgweb gets no object that writes to the channel. It writes to the
answer of its request, which takes nothing after the end of that request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.web.engine import frames

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Mapping

HELD_BYTES: Final = 4 * 1024 * 1024
"""Bytes that hgweb wrote and that wait here for the end of the answer or for more: an archive that
fails before then is a refusal with its reason, and not a download that breaks off."""

BATCH_BYTES: Final = 64 * 1024
"""Bytes of each later frame; the modules of archives write some bytes at a time."""


class EndedError(Exception):
    """Something wrote to the answer of a request that has ended."""


class AnswerWriter:
    """An answer, sent as frames with the number of its request."""

    def __init__(self, channel: socket.socket, number: int) -> None:
        self._channel = channel
        self._number = number
        self._is_ended = False
        self._noted: dict[str, object] = {}
        self._held: list[bytes] = []
        self._size = 0
        self._most = HELD_BYTES
        self._last_check: Callable[[], None] | None = None
        self.status = 0
        """As a number, 0 before hgweb has begun the answer."""

    def start(
        self, status: str, headers: Iterable[tuple[str, str]], exc_info: object = None
    ) -> Callable[[bytes], None]:
        """WSGI's start_response: send status and headers, return write()."""
        del exc_info
        self._check()
        if self.status:
            raise RuntimeError(f"hgweb began an answer with {status!r} that it had begun before")
        self.status = int(status[:3])
        frames.send_json(
            self._channel, frames.HEAD, self._number, {"status": status, "headers": list(headers)}
        )
        return self._write

    def before_sending(self, check: Callable[[], None]) -> None:
        """Call `check` before the first bytes of an answer that is larger than HELD_BYTES.

        If it raises an exception, there is no answer.
        """
        self._last_check = check

    def _write(self, data: bytes) -> None:
        self._check()
        self._held.append(bytes(data))
        self._size += len(data)
        if self._size >= self._most:
            self._check_last()
            self._flush()

    def note(self, fields: Mapping[str, object] | None) -> None:
        """Send the fields of the access log that a data stream has, when they are new."""
        self._check()
        if fields and fields != self._noted:
            self._noted = dict(fields)
            frames.send_json(self._channel, frames.NOTE, self._number, self._noted)

    def _check_last(self) -> None:
        check, self._last_check = self._last_check, None
        if check is None:
            return
        try:
            check()
        except BaseException:
            # The modules of archives write once more while they handle an exception.
            self.abandon()
            raise

    def piece(self, data: bytes) -> None:
        """Send bytes that hgweb returned."""
        self._check()
        self._flush()
        self._send(frames.PIECE, data)

    def end(self, end: Mapping[str, object]) -> None:
        """End a whole answer."""
        self._check()
        self._flush()
        self._is_ended = True
        frames.send_json(self._channel, frames.END, self._number, end)

    def abandon(self) -> None:
        """Take nothing more of this answer: its request has failed."""
        self._is_ended = True
        self._held.clear()

    def fail(self, failure: Mapping[str, object]) -> None:
        """Say why there is no whole answer."""
        self.abandon()
        frames.send_json(self._channel, frames.FAILURE, self._number, failure)

    def _check(self) -> None:
        if self._is_ended:
            raise EndedError(f"request {self._number} has ended")

    def _flush(self) -> None:
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._size = 0
            self._most = BATCH_BYTES
            self._send(frames.WRITTEN, data)

    def _send(self, kind: bytes, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), frames.PART):
            part = bytes(view[start : start + frames.PART])
            frames.send(self._channel, kind, self._number, part)

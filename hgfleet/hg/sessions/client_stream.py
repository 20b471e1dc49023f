"""The client's side of an SSH session as a stream with bounds: length of lines, time of silence."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Final

from hgfleet.hg.sessions.incoming import MAX_LINE, DisconnectedError, SessionEndError, malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE: Final = 65536


class ClientStream:
    """Commands and their arguments from a descriptor.

    Between two requests the client may be silent for `idle` seconds, inside of a request for
    `stall` seconds. A session that waits for longer ends, with SessionEndError.
    """

    def __init__(self, descriptor: int, idle: float, stall: float) -> None:
        self._descriptor, self._idle, self._stall = descriptor, idle, stall
        self._buffer = bytearray()
        self._is_over = False
        self.command = ""
        """The last command, for the log."""

    def fileno(self) -> int:
        """Return the descriptor, to be watched for the end of the connection."""
        return self._descriptor

    def end(self) -> None:
        """Discard all further data of the client: its next command is the end of the session."""
        self._is_over = True
        self._buffer.clear()

    def readline(self) -> bytes:
        """Read a command with its line break, as core's loop does; empty at the end."""
        if self._is_over or (not self._buffer and not self._fill(is_request=False)):
            return b""
        line = self.line()
        self.command = line[:64].decode("ascii", "replace")
        return line + b"\n"

    def line(self) -> bytes:
        """Read a line inside of a request, without its line break."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE:
                break
            self._need()
        if end < 0 or end > MAX_LINE:
            raise malformed(f"got a line of more than {MAX_LINE} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def take(self, size: int) -> bytes:
        """Read that many bytes, which the caller has bounded."""
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[bytes]:
        """Read that many bytes, a piece at a time."""
        while size:
            if not self._buffer:
                self._need()
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            size -= len(piece)
            yield piece

    def _need(self) -> None:
        if not self._fill(is_request=True):
            raise DisconnectedError

    def _fill(self, *, is_request: bool) -> bool:
        """Wait for data of the client; False at the end of the connection."""
        seconds = self._stall if is_request else self._idle
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(seconds * 1000):
            if is_request:
                raise SessionEndError(
                    "stalled",
                    f"nothing arrived for {seconds:.0f} seconds in the middle of a request; "
                    "nothing was changed, try again",
                )
            raise SessionEndError(
                "idle", f"this session had no request for {seconds:.0f} seconds; connect again"
            )
        try:
            data = os.read(self._descriptor, PIECE)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

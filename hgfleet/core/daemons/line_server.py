"""Questions and answers over a local socket: a line each, a question and an answer per connection.

The server is started by a socket unit of systemd. Everything about a question is bounded: its
bytes, its time, the number of connections, and where it matters the user who may ask.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

MOST_CONNECTIONS: Final = 128
"""Connections at a time, each with a thread; more than the clients ever open."""

QUESTION_S: Final = 2.0
"""A client sends its question at once (seconds)."""

STOP_S: Final = 5.0
"""Time that questions in progress get when the server ends (seconds)."""

_FIRST_SOCKET: Final = 3
_CREDENTIALS: Final = struct.Struct("3i")


class ProtocolError(ValueError):
    """A line that breaks the protocol; the message quotes nothing of the line."""


def receive_line(connection: socket.socket, most: int, until: float | None = None) -> bytes:
    """Read up to the end of a line. Raises ProtocolError if there is none within `most` bytes.

    `until` is a time of the monotonic clock, after which TimeoutError is raised.
    """
    received = b""
    while len(received) <= most:
        if until is not None:
            # Never 0, which means "do not wait".
            connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(4096)
        if not piece:
            raise ProtocolError("the other end disconnected")
        received += piece
        line, newline, rest = received.partition(b"\n")
        if newline:
            if rest:
                raise ProtocolError("several lines")
            return line
    raise ProtocolError("the line is too long")


def write_line(data: Mapping[str, object]) -> bytes:
    """Render a JSON object as a line."""
    return json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n"


def read_object(line: bytes) -> dict[str, Any]:
    """Read the JSON object of a line; raise ProtocolError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("the line is no JSON") from None
    if not isinstance(data, dict):
        raise ProtocolError("the line is no JSON object")
    return data


def peer(connection: socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel has it."""
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def listening(program: str) -> socket.socket:
    """Return the socket that systemd opened (sd_listen_fds(3)); raise ConfigurationError."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        raise ConfigurationError(f"{program} is started by its socket unit, {program}.socket")
    return socket.socket(fileno=_FIRST_SOCKET)


class LineServer:
    """A server on a listening socket, which answers until it is stopped.

    `answer` gets the line of a question and returns the line of the answer, with a line feed.
    """

    def __init__(
        self,
        listening: socket.socket,
        answer: Callable[[bytes], bytes],
        log: logfmt.Log,
        *,
        longest: int,
        users: frozenset[int] | None = None,
    ) -> None:
        """Accept questions of at most `longest` bytes from `users` (user ids; None for all)."""
        self._listening = listening
        self._answer = answer
        self._log = log
        self._longest = longest
        self._users = users
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._threads: set[threading.Thread] = set()
        self._stopped = threading.Event()

    def serve(self) -> None:
        """Accept connections until `stop`."""
        # A signal wakes accept(), which also checks the flag from time to time.
        self._listening.settimeout(0.5)
        while not self._stopped.is_set():
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if self._stopped.is_set():
                    break
                self._log(logfmt.line("accept", error=error))
                self._stopped.wait(0.1)
                continue
            if not self._places.acquire(blocking=False):
                # The client reads the end of the connection as "unavailable".
                connection.close()
                self._log(logfmt.line("busy", connections=MOST_CONNECTIONS))
                continue
            thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
            self._threads.add(thread)
            thread.start()
        deadline = time.monotonic() + STOP_S
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def serve_unit(self) -> None:
        """Tell systemd that the unit is ready, and accept connections until SIGTERM or SIGINT."""

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        systemd.notify("READY=1")
        self.serve()

    def stop(self) -> None:
        """Make `serve` return."""
        self._stopped.set()

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(QUESTION_S)
                if self._users is not None and (user := peer(connection)) not in self._users:
                    self._log(logfmt.line("foreign", uid=user))
                    return
                until = time.monotonic() + QUESTION_S
                line = receive_line(connection, self._longest, until)
                answer = self._answer(line)
                connection.settimeout(QUESTION_S)
                connection.sendall(answer)
        except (OSError, ProtocolError) as error:
            self._log(logfmt.line("protocol", error=error))
        except Exception:
            # A defect. The traceback shows no values of variables, so no secrets.
            self._log(logfmt.line("crash", error=traceback.format_exc()[-logfmt.MAX_VALUE :]))
        finally:
            self._places.release()
            self._threads.discard(threading.current_thread())

"""The web workers' end: a client of the daemon that never occupies all threads of a worker."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

from hgfleet.auth import protocol
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from hgfleet.auth.protocol import Answer, Question

CONNECT_S: Final = 1.0
ANSWER_S: Final = 10.0
"""Seconds; longer than the daemon gives the directory."""

QUEUE_S: Final = 0.05
"""How long a question waits for a slot (seconds). It holds a thread that public requests need."""


class AuthClient:
    """Asks the daemon, at most `calls` questions at a time. Safe in threads."""

    def __init__(self, path: str, calls: int) -> None:
        self._path = path
        self._slots = threading.BoundedSemaphore(calls)

    def ask(self, question: Question) -> Answer:
        """Ask about one name and secret. Raises UnavailableError without an answer."""
        try:
            line = protocol.write_question(question)
        except protocol.ProtocolError:
            # Longer than any name or password can be.
            return protocol.Refused()
        if not self._slots.acquire(timeout=QUEUE_S):
            raise UnavailableError("too many questions at a time")
        try:
            answer = self._ask(line)
        except (OSError, protocol.ProtocolError) as error:
            raise UnavailableError(f"{self._path}: {error}") from error
        finally:
            self._slots.release()
        if isinstance(answer, protocol.Person) and answer.name != question.user:
            raise UnavailableError(f"{self._path} answered about another person")
        return answer

    def _ask(self, line: bytes) -> Answer:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(self._path)
            connection.sendall(line)
            connection.settimeout(ANSWER_S)
            return protocol.read_answer(protocol.receive_line(connection, protocol.LONGEST_ANSWER))

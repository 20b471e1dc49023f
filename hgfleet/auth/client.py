"""The web workers' end: a client of the daemon that never occupies all threads of a worker."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from hgfleet.auth import limits, protocol
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.auth.protocol import Answer, Question

CONNECT_S: Final = 1.0
ANSWER_S: Final = 10.0
"""Seconds; longer than the daemon gives the directory."""

QUEUE_S: Final = 0.05
"""How long a question waits for a slot (seconds). It holds a thread that public requests need."""


class AuthClient:
    """Asks the daemon, at most `calls` questions at a time. Safe in threads.

    An address has at most half of these, so that another one finds room.
    """

    def __init__(
        self, path: str, calls: int, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._path = path
        self._slots = threading.BoundedSemaphore(calls)
        self._share = max(1, calls // 2)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._asking: Counter[str] = Counter()

    def ask(self, question: Question) -> Answer:
        """Ask about one name and secret. Raises UnavailableError without an answer.

        A refusal comes after the time that the daemon has set for it.
        """
        try:
            line = protocol.write_question(question)
        except protocol.ProtocolError:
            # Longer than any name or password can be.
            return protocol.Refused()
        with self._slot(limits.source(question.client)):
            try:
                answer = self._ask(line)
            except (OSError, protocol.ProtocolError) as error:
                raise UnavailableError(f"{self._path}: {error}") from error
        if isinstance(answer, protocol.Refused):
            self._sleep(answer.after)
        if isinstance(answer, protocol.Person) and answer.name != question.user:
            raise UnavailableError(f"{self._path} answered about another person")
        return answer

    @contextlib.contextmanager
    def _slot(self, address: str) -> Iterator[None]:
        with self._lock:
            if self._asking[address] >= self._share:
                raise UnavailableError(f"too many questions of {address} at a time")
            self._asking[address] += 1
        try:
            if not self._slots.acquire(timeout=QUEUE_S):
                raise UnavailableError("too many questions at a time")
            try:
                yield
            finally:
                self._slots.release()
        finally:
            with self._lock:
                self._asking[address] -= 1
                if not self._asking[address]:
                    del self._asking[address]

    def _ask(self, line: bytes) -> Answer:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(self._path)
            connection.sendall(line)
            connection.settimeout(ANSWER_S)
            return protocol.read_answer(protocol.receive_line(connection, protocol.LONGEST_ANSWER))

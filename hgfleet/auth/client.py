"""The client of the daemon in the web workers, which never occupies all threads of a worker."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from hgfleet.auth import limits, protocol
from hgfleet.core.daemons import line_server
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.auth.protocol import Answer, Question

CONNECT_S: Final = 1.0
ANSWER_S: Final = 10.0
"""Seconds; longer than the daemon gives the directory."""

AGAIN_S: Final = 2.0
"""How long a question about a person who was let in waits for a slot (seconds): the request has
waited already."""

QUEUE_S: Final = 0.05
"""How long a question waits for a slot and for its address's share (seconds). It holds a thread
that public requests need."""


class NotAskedError(UnavailableError):
    """No slot was free for a question; the daemon itself may be fine."""


class AuthClient:
    """Asks the daemon, at most `calls` questions at a time. Safe in threads.

    An address has at most half of the slots, so that other addresses find a free slot. As many
    refusals may wait for their time. If more wait, a refused client gets no answer at once.
    """

    def __init__(
        self, path: str, calls: int, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._path = path
        self._calls = calls
        self._share = max(1, calls // 2)
        self._sleep = sleep
        self._refusals = threading.BoundedSemaphore(calls)
        self._left = threading.Condition()
        self._asking: Counter[str] = Counter()

    def ask(self, question: Question) -> Answer:
        """Ask about a name and its secret. Raises UnavailableError without an answer.

        A refusal comes after the time that the daemon has set for it.
        """
        answer = self._answer(question, QUEUE_S)
        if isinstance(answer, protocol.Refused):
            if not self._refusals.acquire(blocking=False):
                raise UnavailableError("too many refusals wait at a time")
            try:
                self._sleep(answer.after)
            finally:
                self._refusals.release()
        return answer

    def again(self, question: Question) -> Answer:
        """Ask about a secret that was right a while ago; raise UnavailableError without an answer.

        A refusal comes at once, since it reveals nothing to a client that guesses. NotAskedError:
        other questions of the client's address, or of all clients, took the time.
        """
        return self._answer(question, AGAIN_S)

    def _answer(self, question: Question, patience: float) -> Answer:
        try:
            line = protocol.write_question(question)
        except protocol.ProtocolError:
            # The line is longer than any name and password can make it.
            return protocol.Refused()
        with self._slot(limits.source(question.client), patience):
            try:
                answer = self._ask(line)
            except (OSError, protocol.ProtocolError) as error:
                raise UnavailableError(f"{self._path}: {error}") from error
        if isinstance(answer, protocol.Person) and answer.name != question.user:
            raise UnavailableError(f"{self._path} answered about another person")
        return answer

    @contextlib.contextmanager
    def _slot(self, address: str, patience: float) -> Iterator[None]:
        with self._left:
            if not self._left.wait_for(lambda: self._has_room(address), patience):
                whose = f" of {address}" if self._asking[address] >= self._share else ""
                raise NotAskedError(f"too many questions{whose} at a time")
            self._asking[address] += 1
        try:
            yield
        finally:
            with self._left:
                self._asking[address] -= 1
                if not self._asking[address]:
                    del self._asking[address]
                self._left.notify_all()

    def _has_room(self, address: str) -> bool:
        return self._asking.total() < self._calls and self._asking[address] < self._share

    def _ask(self, line: bytes) -> Answer:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(self._path)
            connection.sendall(line)
            connection.settimeout(ANSWER_S)
            return protocol.read_answer(
                line_server.receive_line(connection, protocol.LONGEST_ANSWER)
            )

"""The web workers' end of sign-in: slots, shares of an address, and when a refusal is told."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import protocol
from hgfleet.auth.client import AuthClient
from hgfleet.auth.protocol import Question, Refused
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.conftest import WaitFor

CALLS = 4


class Daemon:
    """A daemon that refuses, once it is told to answer; it notes the addresses that ask."""

    def __init__(self, path: Path) -> None:
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(str(path))
        self.listening.listen()
        self.may_answer = threading.Event()
        self.asked: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            line = protocol.receive_line(connection, protocol.LONGEST_QUESTION)
            self.asked.append(protocol.read_question(line).client)
            self.may_answer.wait()
            connection.sendall(protocol.write_answer(Refused(0.25)))

    def close(self) -> None:
        self.may_answer.set()
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "socket")
    yield made
    made.close()


def test_an_address_has_half_of_the_slots(
    daemon: Daemon, tmp_path: Path, wait_for: WaitFor
) -> None:
    client = AuthClient(str(tmp_path / "socket"), CALLS, sleep=lambda _: None)
    guesser, bob = Question("bob", "x", "192.0.2.7"), Question("bob", "x", "192.0.2.8")
    answers: list[protocol.Answer] = []
    threads = [
        threading.Thread(target=lambda question=question: answers.append(client.ask(question)))
        for question in (guesser, guesser, bob)
    ]
    for number, thread in enumerate(threads, 1):
        thread.start()
        wait_for("the daemon is asked", lambda count=number: len(daemon.asked) == count)
    with pytest.raises(UnavailableError, match=r"too many questions of 192\.0\.2\.7"):
        client.ask(guesser)
    daemon.may_answer.set()
    for thread in threads:
        thread.join()
    assert answers == [Refused()] * 3
    assert client.ask(guesser) == Refused()


def test_a_refusal_waits_without_a_slot(daemon: Daemon, tmp_path: Path) -> None:
    daemon.may_answer.set()
    waited: list[float] = []
    nested: list[protocol.Answer] = []
    question = Question("bob", "x", "192.0.2.7")

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 1:
            # The only slot is free again.
            nested.append(client.ask(question))

    client = AuthClient(str(tmp_path / "socket"), 1, sleep=sleep)
    assert client.ask(question) == Refused()
    assert nested == [Refused()]
    assert waited == [0.25, 0.25]

"""The web workers' end of sign-in: slots, shares of an address, and when a refusal is told."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import client as client_module
from hgfleet.auth import protocol
from hgfleet.auth.client import AuthClient, NotAskedError
from hgfleet.auth.protocol import Person, Question, Refused
from hgfleet.core.daemons import line_server
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.conftest import WaitFor

CALLS = 4
RIGHT = "right"


class Daemon:
    """A daemon that knows a secret; it answers when it is told to, and records who asks."""

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
            line = line_server.receive_line(connection, protocol.LONGEST_QUESTION)
            question = protocol.read_question(line)
            self.asked.append(question.client)
            self.may_answer.wait()
            is_right = question.secret == RIGHT
            person = Person(question.user, frozenset(), "token")
            connection.sendall(protocol.write_answer(person if is_right else Refused(0.25)))

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

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        # The only slot is free again.
        nested.append(client.ask(Question("bob", RIGHT, "192.0.2.7")))

    client = AuthClient(str(tmp_path / "socket"), 1, sleep=sleep)
    assert client.ask(Question("bob", "x", "192.0.2.7")) == Refused()
    assert nested == [Person("bob", frozenset(), "token")]
    assert waited == [0.25]


def test_a_refusal_after_a_wait_is_told_at_once_however_many_others_wait(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.may_answer.set()
    nested: list[protocol.Answer] = []
    question = Question("bob", "x", "192.0.2.7")

    def sleep(_: float) -> None:
        with pytest.raises(UnavailableError, match="too many refusals wait"):
            client.ask(question)
        nested.append(client.again(question))

    client = AuthClient(str(tmp_path / "socket"), 1, sleep=sleep)
    assert client.ask(question) == Refused()
    assert nested == [Refused()]


def test_a_question_after_a_wait_finds_no_room(
    daemon: Daemon, tmp_path: Path, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "AGAIN_S", 0.01)
    client = AuthClient(str(tmp_path / "socket"), 2, sleep=lambda _: None)
    question = Question("bob", RIGHT, "192.0.2.7")
    other = threading.Thread(target=lambda: client.ask(question))
    other.start()
    wait_for("the daemon is asked", lambda: len(daemon.asked) == 1)
    with pytest.raises(NotAskedError, match=r"too many questions of 192\.0\.2\.7"):
        client.again(question)
    daemon.may_answer.set()
    other.join()
    assert client.again(question) == Person("bob", frozenset(), "token")


def test_a_question_waits_a_moment_for_the_share_of_its_address(
    daemon: Daemon, tmp_path: Path, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many jobs at the same address begin together, and each question takes a moment.
    monkeypatch.setattr(client_module, "QUEUE_S", 60)
    client = AuthClient(str(tmp_path / "socket"), CALLS, sleep=lambda _: None)
    question = Question("ci", RIGHT, "192.0.2.7")
    failed: list[UnavailableError] = []
    answers: list[protocol.Answer] = []

    def ask() -> None:
        try:
            answers.append(client.ask(question))
        except UnavailableError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(CALLS)]
    for thread in threads:
        thread.start()
    wait_for("the share is in use", lambda: len(daemon.asked) == CALLS // 2)
    daemon.may_answer.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert answers == [Person("ci", frozenset(), "token")] * CALLS


def test_refusals_that_wait_leave_threads_to_others(
    daemon: Daemon, tmp_path: Path, wait_for: WaitFor
) -> None:
    daemon.may_answer.set()
    may_end = threading.Event()
    waiting: list[float] = []

    def sleep(seconds: float) -> None:
        waiting.append(seconds)
        may_end.wait()

    client = AuthClient(str(tmp_path / "socket"), CALLS, sleep=sleep)
    threads = [
        threading.Thread(target=client.ask, args=(Question("bob", "x", f"192.0.2.{number}"),))
        for number in range(CALLS)
    ]
    for number, thread in enumerate(threads, 1):
        thread.start()
        wait_for("a refusal waits", lambda count=number: len(waiting) == count)
    try:
        with pytest.raises(UnavailableError, match="too many refusals wait"):
            client.ask(Question("bob", "x", "192.0.2.9"))
        answer = client.ask(Question("bob", RIGHT, "192.0.2.9"))
        assert answer == Person("bob", frozenset(), "token")
    finally:
        may_end.set()
    for thread in threads:
        thread.join()
    # Their places are free again.
    assert client.ask(Question("bob", "x", "192.0.2.9")) == Refused()

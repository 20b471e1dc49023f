"""Questions of one line over a local socket: bounds of a client."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.daemons import line_server
from hgfleet.core.daemons.line_server import LineServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Site:
    """A server on a socket, and its log."""

    def __init__(self, path: Path, users: frozenset[int] | None) -> None:
        self.path = str(path)
        self.logged: list[str] = []
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self.path)
        listening.listen()
        self.server = LineServer(
            listening, self.answer, self.logged.append, longest=10, users=users
        )
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def answer(self, line: bytes) -> bytes:
        if line == b"crash":
            raise RuntimeError("a defect")
        return line.upper() + b"\n"

    def end(self) -> list[str]:
        """Stop, and return the log until the end of all questions."""
        self.server.stop()
        self.thread.join()
        return self.logged

    def ask(self, sent: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(10)
            connection.connect(self.path)
            try:
                connection.sendall(sent)
                return connection.recv(100)
            except (BrokenPipeError, ConnectionResetError):
                return b""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def new(users: frozenset[int] | None = None) -> Site:
        made.append(Site(tmp_path / "socket", users))
        return made[-1]

    yield new
    for site in made:
        site.end()


def test_a_question_gets_its_answer(start: Callable[..., Site]) -> None:
    site = start()
    assert site.ask(b"alice\n") == b"ALICE\n"
    assert site.end() == []


def test_another_user_is_not_answered(start: Callable[..., Site]) -> None:
    site = start(frozenset({os.getuid() + 1}))
    assert site.ask(b"alice\n") == b""
    assert site.end() == [f"event=foreign uid={os.getuid()}"]


@pytest.mark.parametrize("sent", [b"x" * 5000, b"two\nlines\n"])
def test_more_than_a_line_is_not_answered(start: Callable[..., Site], sent: bytes) -> None:
    site = start()
    assert site.ask(sent) == b""
    assert site.ask(b"alice\n") == b"ALICE\n"
    assert site.end()[0].startswith("event=protocol error=")


def test_a_slow_question_has_one_time_for_all_of_its_bytes(
    start: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_server, "QUESTION_S", 0.2)
    site = start()
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(site.path)
        connection.settimeout(0.05)
        end = b"-"
        while end:
            try:
                connection.sendall(b"x")
                end = connection.recv(1)
            except TimeoutError:
                # A byte each 0.05 s is never late by itself.
                assert time.monotonic() - began < 10
            except OSError:
                end = b""
    assert "event=protocol" in site.end()[0]


def test_a_defect_ends_one_question(start: Callable[..., Site]) -> None:
    site = start()
    assert site.ask(b"crash\n") == b""
    assert site.ask(b"alice\n") == b"ALICE\n"
    assert "RuntimeError" in site.end()[0]


PROGRAM = """
import socket, sys
from hgfleet.core.daemons.line_server import LineServer
listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind(sys.argv[1])
listening.listen()
LineServer(listening, lambda line: line + b"\\n", print, longest=10).serve_unit()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_unit_is_ready_and_ends_when_it_is_told_to(
    tmp_path: Path, number: signal.Signals
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "socket")]
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen(command, env=environment) as program:
            assert systemd.recv(100) == b"READY=1"
            program.send_signal(number)
            assert program.wait(60) == 0


@pytest.mark.parametrize("line", [b"{", b"\xff", b"[]", b"1", b"[" * 100_000])
def test_a_line_that_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(line_server.ProtocolError, match="the line is no JSON"):
        line_server.read_object(line)


def test_an_object_that_is_written_is_read() -> None:
    line = line_server.write_line({"name": "alice\n", "number": 1})
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert line_server.read_object(line) == {"name": "alice\n", "number": 1}

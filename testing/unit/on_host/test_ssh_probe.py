"""The SSH service of a host, met as a client meets it."""

from __future__ import annotations

import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from testing.support import loading

if TYPE_CHECKING:
    from collections.abc import Iterator

ssh_probe = loading.module("ansible/on_host/ssh_probe.py")

HEAD, OTHER = "1" * 40, "2" * 40
REPOSITORY: dict[str, Any] = {"path": "project", "heads": [HEAD]}


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def hg(heads: list[str], *, length: int | None = None) -> list[str]:
    """Return a command that answers as `hg serve --stdio` does, and notes how it was called."""
    body = " ".join(heads) + "\n"
    return program(
        "import os, sys\n"
        "assert sys.argv[1:4:2] == ['--user', '--login'], sys.argv\n"
        "assert os.environ['SSH_ORIGINAL_COMMAND'] == 'hg -R project serve --stdio'\n"
        "assert sys.stdin.read() == 'heads\\n'\n"
        f"sys.stdout.write({f'{len(body) if length is None else length}{chr(10)}{body}'!r})"
    )


def test_a_session_that_tells_the_heads_is_well() -> None:
    assert ssh_probe.session(hg([HEAD]), REPOSITORY, 1000.0) == ""
    two = {"path": "project", "heads": [HEAD, OTHER]}
    assert ssh_probe.session(hg([OTHER, HEAD]), two, 1000.0) == ""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (hg([OTHER]), "wrong data: a session of project has heads 222222222222, on the disk are 1"),
        (hg([]), "wrong data: a session of project has heads none"),
        (hg([HEAD], length=99), "a session of project fails (0): it said nothing"),
        (
            program("import sys; sys.exit('abort: no such extension')"),
            "a session of project fails (1): abort: no such extension",
        ),
        (["/no/such/program"], "a session of project fails: "),
    ],
)
def test_a_session_that_is_refused_or_tells_other_heads_is_a_problem(
    command: list[str], words: str
) -> None:
    assert ssh_probe.session(command, REPOSITORY, 1000.0).startswith(words)


def test_a_session_that_hangs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_probe, "SECONDS", 0.2)
    hangs = program("import signal; signal.pause()")
    assert "timed out" in ssh_probe.session(hangs, REPOSITORY, 1000.0)
    assert "timed out" in ssh_probe.key_lookup(hangs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('ldapi:/// answers after 0.004 s')", ""),
        # A dead server of two is a matter for monitoring.
        ("print('ldaps://a down after 1 s'); print('ldapi:/// answers after 0.004 s')", ""),
        (
            "import sys; print('ldapi:/// down after 1 s'); sys.exit(69)",
            "the key lookup fails (69): ldapi:/// down after 1 s",
        ),
        ("import sys; sys.exit('no module')", "the key lookup fails (1): no module"),
        ("", "the key lookup asked no directory server"),
    ],
)
def test_the_key_lookup_asks_the_directory(text: str, words: str) -> None:
    assert ssh_probe.key_lookup(program(text)) == words


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_10.0\r\n", b"HTTP/1.1 400\r\n", b""])
def test_a_listener_tells_its_protocol(server: socket.socket, said: bytes) -> None:
    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(said)

    thread = threading.Thread(target=answer)
    thread.start()
    port = server.getsockname()[1]
    problem = ssh_probe.listener("127.0.0.1", port)
    thread.join()
    assert (problem == "") is said.startswith(b"SSH")
    assert problem == "" or problem.startswith(f"no SSH at 127.0.0.1 port {port}: it said")


def test_a_port_without_a_listener_is_a_problem_and_each_part_is_told(
    server: socket.socket,
) -> None:
    port = server.getsockname()[1]
    server.close()
    question = {
        "address": "127.0.0.1",
        "port": port,
        "truth": [REPOSITORY],
        "keys": ["/no/such/program"],
        "shell": hg([OTHER]),
    }
    problems = ssh_probe.problems(question, 1000.0)
    assert [text.split(":")[0] for text in problems] == [
        f"no SSH at 127.0.0.1 port {port}",
        "the key lookup fails",
        "wrong data",
    ]

"""The protocol of `hgfleet-people`."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.daemons.line_server import LineServer, ProtocolError
from hgfleet.core.errors import UnavailableError
from hgfleet.directory import person_state
from hgfleet.directory.person_state import PersonState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY = f"SHA256:{'k' * 43}"
PERSON_ID = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"


@pytest.mark.parametrize(
    "state",
    [
        PersonState("enabled", frozenset({"staff", "a" * 64}), frozenset({KEY})),
        PersonState("enabled"),
        PersonState("enabled", person_id=PERSON_ID),
        PersonState("disabled"),
        PersonState("disabled", person_id=PERSON_ID),
        PersonState("missing"),
        PersonState("unclear"),
        None,
    ],
)
def test_an_answer_arrives_as_it_was(state: PersonState | None) -> None:
    line = person_state.write_answer(state)
    assert line.endswith(b"\n")
    assert person_state.read_answer(line[:-1]) == state


def test_the_largest_answer_has_room() -> None:
    groups = frozenset(f"{n:0>64}" for n in range(200))
    keys = frozenset(f"SHA256:{n:0>43}" for n in range(5000))
    line = person_state.write_answer(PersonState("enabled", groups, keys))
    assert len(line) < person_state.LONGEST_ANSWER
    assert len(person_state.write_question("a" * 32)) < person_state.LONGEST_QUESTION


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"person": 7}',
        b'{"person": ""}',
        b'{"person": "*"}',
        b'{"person": "Alice"}',
        b'{"person": "alice)(uid=*"}',
        b'{"person": "alice", "secret": "x"}',
        b"[" * 100_000,
    ],
)
def test_a_name_is_all_that_a_question_has(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        person_state.read_question(line)


@pytest.mark.parametrize("name", ["", "operator:root", "a b", "a" * 33])
def test_a_name_that_no_person_has_is_not_asked_about(name: str) -> None:
    with pytest.raises(ProtocolError):
        person_state.write_question(name)
    assert person_state.read_question(person_state.write_question("alice")[:-1]) == "alice"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"state": "ok"},
        {"state": "enabled"},
        {"state": "enabled", "groups": "staff", "keys": []},
        {"state": "enabled", "groups": ["a,b"], "keys": []},
        {"state": "enabled", "groups": [7], "keys": []},
        {"state": "enabled", "groups": [], "keys": ["x"]},
        {"state": "enabled", "groups": ["a"] * 201, "keys": []},
        {"state": "enabled", "id": "bob", "groups": [], "keys": []},
        {"state": "disabled", "id": ["x"]},
    ],
)
def test_an_answer_of_another_form_is_none(answer: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        person_state.read_answer(json.dumps(answer).encode())


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Callable[[bytes], bytes]], str]]:
    """Give a function that answers questions on a socket and returns its path."""
    servers: list[tuple[LineServer, threading.Thread]] = []

    def start(answer: Callable[[bytes], bytes]) -> str:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        server = LineServer(listening, answer, lambda _line: None, longest=128)
        thread = threading.Thread(target=server.serve)
        thread.start()
        servers.append((server, thread))
        return str(tmp_path / "socket")

    yield start
    for server, thread in servers:
        server.stop()
        thread.join()


def test_a_client_gets_the_answer(serve: Callable[..., str]) -> None:
    state = PersonState("enabled", frozenset({"staff"}))
    asked: list[str] = []

    def answer(line: bytes) -> bytes:
        asked.append(person_state.read_question(line))
        return person_state.write_answer(state)

    assert person_state.ask("alice", serve(answer)) == state
    assert asked == ["alice"]


@pytest.mark.parametrize("said", [b'{"state":"unavailable"}\n', b"", b"x\n", b"{}\n" * 40_000])
def test_every_other_answer_is_none(serve: Callable[..., str], said: bytes) -> None:
    path = serve(lambda _line: said)
    with pytest.raises(UnavailableError, match="socket: "):
        person_state.ask("alice", path)


def test_a_client_waits_for_a_bounded_time(
    serve: Callable[..., str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    done = threading.Event()
    request.addfinalizer(done.set)

    def answer(_line: bytes) -> bytes:
        done.wait()
        return b""

    with pytest.raises(UnavailableError):
        person_state.ask("alice", serve(answer), 0.05)
    with pytest.raises(UnavailableError, match="none"):
        person_state.ask("alice", str(tmp_path / "none"))
    done.set()

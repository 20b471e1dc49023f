"""The protocol between workers and the daemon."""

from __future__ import annotations

import json
import socket

import pytest

from hgfleet.auth import protocol
from hgfleet.auth.protocol import Person, ProtocolError, Question, Refused, Throttled, Unavailable
from hgfleet.core.daemons import line_server

QUESTION = Question("alice", "pä\0ss\nword\u2028", "192.0.2.7")


@pytest.mark.parametrize(
    "answer",
    [
        Person("alice", frozenset({"maintainers", "a" * 64}), "token"),
        Person("bob", frozenset(), "password"),
        Person("bob", frozenset(), "password", "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"),
        Person("carol", frozenset(f"{number:064}" for number in range(200)), "password"),
        Refused(),
        Throttled(12),
        Unavailable(),
    ],
)
def test_answers_arrive_as_they_were_sent(answer: protocol.Answer) -> None:
    line = protocol.write_answer(answer)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.read_answer(line[:-1]) == answer


def test_a_refusal_says_when_it_is_told() -> None:
    sent = protocol.read_answer(protocol.write_answer(Refused(0.25))[:-1])
    assert isinstance(sent, Refused)
    assert sent.after == 0.25
    # The daemon of the release before waits itself.
    assert protocol.read_answer(b'{"answer":"refused"}') == Refused()
    for after in ("-1", "1e9", "NaN", "Infinity", '"1"', "true", "null"):
        with pytest.raises(ProtocolError):
            protocol.read_answer(f'{{"answer":"refused","after":{after}}}'.encode())


def test_a_question_arrives_as_it_was_asked_in_one_line() -> None:
    line = protocol.write_question(QUESTION)
    assert line.count(b"\n") == 1
    assert protocol.read_question(line[:-1]) == QUESTION


def test_the_longest_question_fits() -> None:
    question = Question("\u2028" * 256, "\u2028" * 1024, "x" * 64)
    line = protocol.write_question(question)
    assert len(line) <= protocol.LONGEST_QUESTION
    assert protocol.read_question(line[:-1]) == question


@pytest.mark.parametrize(
    "question",
    [Question("x" * 257, "", ""), Question("", "x" * 1025, ""), Question("", "", "x" * 65)],
)
def test_longer_ones_are_not_sent(question: Question) -> None:
    with pytest.raises(ProtocolError):
        protocol.write_question(question)


def test_a_secret_is_in_no_representation() -> None:
    assert "ss" not in repr(QUESTION)
    assert "alice" in repr(QUESTION)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'"secret"',
        b"{}",
        b'{"user": "a", "secret": "secret"}',
        b'{"user": "a", "secret": 1, "client": ""}',
        b'{"user": ["a"], "secret": "", "client": ""}',
        b'{"user": "a", "secret": "", "client": "", "groups": ["secret"]}',
        b"\xff",
        b"[" * 8000,
        b'{"user": "' + b"a" * 300 + b'", "secret": "", "client": ""}',
        b'{"user": "' + b"a" * 9000 + b'", "secret": "", "client": ""}',
    ],
)
def test_other_questions_are_refused_and_not_repeated(line: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        protocol.read_question(line)
    assert "secret is" in str(refused.value) or "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"answer": None},
        {"answer": "yes"},
        {"answer": "person"},
        {"answer": "person", "name": "", "groups": [], "via": "token"},
        {"answer": "person", "name": "alice", "groups": "maintainers", "via": "token"},
        {"answer": "person", "name": "alice", "groups": [1], "via": "token"},
        {"answer": "person", "name": "alice", "groups": []},
        {"answer": "throttled"},
        {"answer": "throttled", "seconds": -1},
        {"answer": "throttled", "seconds": True},
        {"answer": "throttled", "seconds": "1"},
    ],
)
def test_other_answers_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        protocol.read_answer(json.dumps(data).encode())


@pytest.mark.parametrize("sent", [b"", b"no end", b"one\ntwo\n", b"x" * 200])
def test_a_line_has_an_end_and_nothing_behind_it(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ProtocolError):
            line_server.receive_line(ours, 100)


def test_a_line_may_come_in_pieces() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"one ")
        theirs.sendall(b"line\n")
        assert line_server.receive_line(ours, 100) == b"one line"

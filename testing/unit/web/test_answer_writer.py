from __future__ import annotations

from typing import Any

import pytest

from hgfleet.web.engine import frames
from hgfleet.web.rendering.answer_writer import BATCH_BYTES, HELD_BYTES, AnswerWriter, EndedError

END = {"ends": False, "cpu": 0.0}


class Channel:
    """Both ends of a channel, which takes any number of bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def sendall(self, data: bytes) -> None:
        self._bytes += data

    def recv_into(self, view: memoryview) -> int:
        size = min(len(view), len(self._bytes))
        view[:size] = self._bytes[:size]
        del self._bytes[:size]
        return size


@pytest.fixture
def channel() -> Any:
    return Channel()


def received(channel: Any) -> list[tuple[bytes, int, bytes]]:
    """Return all frames that were sent."""
    parts = []
    while True:
        try:
            parts.append(frames.receive(channel))
        except frames.ClosedError:
            return parts


def test_an_answer_is_its_head_its_bytes_and_its_end(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    write = answer.start("200 OK", [("A", "b")])
    write(b"one")
    write(b"two")
    answer.piece(b"three")
    answer.end(END)
    kinds = [(kind, number) for kind, number, _ in received(channel)]
    expected = (frames.HEAD, frames.WRITTEN, frames.PIECE, frames.END)
    assert kinds == [(kind, 5) for kind in expected]


@pytest.mark.parametrize("is_failed", [False, True])
def test_a_write_of_an_ended_request_raises_and_sends_nothing(
    channel: Any, *, is_failed: bool
) -> None:
    answer = AnswerWriter(channel, 5)
    write = answer.start("200 OK", [])
    if is_failed:
        answer.fail({"kind": "error", **END})
    else:
        answer.end(END)
    before = len(received(channel))
    for late in (
        lambda: write(b"the end of a zip archive"),
        lambda: answer.piece(b"x"),
        lambda: answer.start("200 OK", []),
        lambda: answer.end(END),
    ):
        with pytest.raises(EndedError, match="request 5 has ended"):
            late()
    assert (before, received(channel)) == (2, [])


def test_a_failure_before_the_first_byte_sends_none(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    answer.start("200 OK", [])(b"x" * (HELD_BYTES - 1))
    answer.fail({"kind": "error", **END})
    assert [kind for kind, _, _ in received(channel)] == [frames.HEAD, frames.FAILURE]


def test_what_is_held_back_is_bounded(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    write = answer.start("200 OK", [])
    write(b"x" * (HELD_BYTES - 1))
    assert [kind for kind, _, _ in received(channel)] == [frames.HEAD]
    write(b"y")
    first = received(channel)
    assert {kind for kind, _, _ in first} == {frames.WRITTEN}
    assert b"".join(payload for _, _, payload in first) == b"x" * (HELD_BYTES - 1) + b"y"
    for _ in range(BATCH_BYTES):
        write(b"z")
    (batch,) = received(channel)
    assert batch == (frames.WRITTEN, 5, b"z" * BATCH_BYTES)


def test_an_answer_begins_once(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    answer.start("404 Not Found", [])
    assert answer.status == 404
    with pytest.raises(RuntimeError, match="had begun before"):
        answer.start("200 OK", [])


def test_the_last_check_comes_once_before_the_first_bytes_of_a_large_answer(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    write = answer.start("200 OK", [])
    frames.receive(channel)
    seen: list[list[tuple[bytes, int, bytes]]] = []
    answer.before_sending(lambda: seen.append(received(channel)))
    write(b"x" * (HELD_BYTES - 1))
    assert seen == []
    write(b"x")
    assert seen == [[]], "nothing was sent before it"
    write(b"x" * BATCH_BYTES)
    answer.end(END)
    assert len(seen) == 1


def test_a_small_answer_needs_no_last_check(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    write = answer.start("200 OK", [])
    answer.before_sending(lambda: pytest.fail("it is whole"))
    write(b"x" * (HELD_BYTES - 1))
    answer.end(END)
    kinds = [kind for kind, *_ in received(channel)]
    assert list(dict.fromkeys(kinds)) == [frames.HEAD, frames.WRITTEN, frames.END]


def test_after_a_last_check_that_fails_nothing_is_sent(channel: Any) -> None:
    answer = AnswerWriter(channel, 5)
    write = answer.start("200 OK", [])

    def check() -> None:
        raise ValueError("removed")

    answer.before_sending(check)
    with pytest.raises(ValueError, match="removed"):
        write(b"x" * HELD_BYTES)
    # A `ZipFile` writes while it handles the exception.
    with pytest.raises(EndedError):
        write(b"the end of a zip archive" * HELD_BYTES)
    assert [kind for kind, *_ in received(channel)] == [frames.HEAD]

from __future__ import annotations

import socket
import struct

import pytest

from hgfleet.web.engine import frames
from hgfleet.web.engine.frames import BrokenError

WHOLE = (frames.HEAD, frames.WRITTEN, frames.WRITTEN, frames.PIECE, frames.END)
WAYS = (
    WHOLE,
    (frames.HEAD, frames.END),
    (frames.HEAD, frames.PIECE, frames.PIECE, frames.END),
    (frames.HEAD, frames.WRITTEN, frames.FAILURE),
    (frames.FAILURE,),
    (frames.END,),
)


@pytest.mark.parametrize("kinds", WAYS)
def test_an_answer_has_its_frames_in_order(kinds: tuple[bytes, ...]) -> None:
    order = frames.Sequence(7)
    for kind in kinds:
        order.check(kind, 7)


@pytest.mark.parametrize("kinds", WAYS)
def test_a_frame_of_another_request_fits_nowhere(kinds: tuple[bytes, ...]) -> None:
    for place in range(len(kinds)):
        order = frames.Sequence(7)
        for kind in kinds[:place]:
            order.check(kind, 7)
        for other in (0, 6, 8):
            with pytest.raises(BrokenError, match=f"of request {other}, expected 7"):
                order.check(kinds[place], other)


@pytest.mark.parametrize(
    "kinds",
    [
        (frames.WRITTEN,),
        (frames.PIECE,),
        (frames.HELLO,),
        (frames.REQUEST,),
        (b"?",),
        (frames.HEAD, frames.HEAD),
        (frames.HEAD, frames.REQUEST),
        (frames.HEAD, frames.PIECE, frames.WRITTEN),
        (frames.HEAD, frames.PIECE, frames.HEAD),
        (frames.HEAD, frames.END, frames.WRITTEN),
        (frames.HEAD, frames.END, frames.END),
        (frames.FAILURE, frames.HEAD),
        (frames.FAILURE, frames.WRITTEN),
    ],
)
def test_a_kind_that_has_no_place_there_is_refused(kinds: tuple[bytes, ...]) -> None:
    order = frames.Sequence(1)
    *before, last = kinds
    for kind in before:
        order.check(kind, 1)
    with pytest.raises(BrokenError, match="got a frame"):
        order.check(last, 1)


@pytest.mark.parametrize(
    "payload",
    [
        b"PK\x05\x06",
        b"",
        b"[]",
        b"{}",
        b'{"status": 200, "headers": []}',
        b'{"status": "two hundred", "headers": []}',
        b'{"status": "200 OK\\r\\nX: y", "headers": []}',
        b'{"status": "200 OK"}',
        b'{"status": "200 OK", "headers": {}}',
        b'{"status": "200 OK", "headers": [["a"]]}',
        b'{"status": "200 OK", "headers": [["a", 1]]}',
        b"[" * 100_000,
    ],
)
def test_a_head_of_another_form_is_refused(payload: bytes) -> None:
    with pytest.raises(BrokenError, match="got "):
        frames.head(payload)


def test_a_head_has_status_and_headers() -> None:
    head = frames.head(b'{"status": "200 Script output follows", "headers": [["A", "b"]]}')
    assert head == ("200 Script output follows", [("A", "b")])


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (frames.END, b"PK"),
        (frames.END, b"{}"),
        (frames.END, b'{"ends": 0, "cpu": 1}'),
        (frames.END, b'{"ends": false, "cpu": "1"}'),
        (frames.END, b'{"ends": false, "cpu": 1, "kind": "error"}'),
        (frames.FAILURE, b'{"ends": true, "cpu": 1}'),
        (frames.FAILURE, b'{"ends": true, "cpu": 1, "kind": 3}'),
        (frames.FAILURE, b'{"ends": true, "cpu": 1, "kind": "error", "cause": {}}'),
    ],
)
def test_an_end_of_another_form_is_refused(kind: bytes, payload: bytes) -> None:
    with pytest.raises(BrokenError, match="got "):
        frames.end(kind, payload)


def test_an_end_says_what_it_cost_and_a_failure_why() -> None:
    assert frames.end(frames.END, b'{"ends": false, "cpu": 0.5}') == (False, 0.5, "", "", False)
    failure = b'{"ends": true, "cpu": 1, "kind": "limit", "cause": "memory"}'
    assert frames.end(frames.FAILURE, failure) == (True, 1.0, "limit", "memory", False)
    told = failure[:-1] + b', "is_told": true}'
    assert frames.end(frames.FAILURE, told).is_told
    with pytest.raises(BrokenError):
        frames.end(frames.FAILURE, told.replace(b"true}", b"1}"))


def test_a_frame_brings_kind_number_and_payload() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, frames.PIECE, 2**40, b"bytes")
        assert frames.receive(ours) == (frames.PIECE, 2**40, b"bytes")
        frames.send_json(theirs, frames.HELLO, 0, {"pid": 12})
        kind, number, payload = frames.receive(ours)
        assert (frames.greeting(kind, payload), number) == (12, 0)
        with pytest.raises(BrokenError, match="first frame"):
            frames.greeting(frames.HEAD, b'{"pid": 12}')


def test_a_frame_above_the_largest_is_a_broken_channel_and_not_a_closed_one() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">cQI", frames.PIECE, 1, 2**31))
        with pytest.raises(BrokenError, match="2147483648 bytes"):
            frames.receive(ours)
        theirs.close()
        with pytest.raises(frames.ClosedError):
            frames.receive(ours)


def test_only_a_data_stream_sends_notes_and_questions() -> None:
    for kind in (frames.NOTE, frames.ASK):
        with pytest.raises(BrokenError):
            frames.Sequence(1).check(kind, 1)
        order = frames.Sequence(1, is_stream=True)
        for following in (kind, frames.HEAD, kind, frames.PIECE, kind, frames.END):
            order.check(following, 1)
        with pytest.raises(BrokenError):
            order.check(kind, 1)
        with pytest.raises(BrokenError):
            frames.Sequence(1, is_stream=True).check(kind, 2)


def test_a_note_has_fields_of_the_access_log_and_their_values_alone() -> None:
    right = b'{"answer": "clone", "source": "live", "waited": 1.5}'
    assert frames.note(right) == {"answer": "clone", "source": "live", "waited": 1.5}
    wrong = ("[]", '{"repository": "team/x"}', '{"answer": "x"}', '{"source": 1}')
    for payload in (*wrong, '{"waited": "1"}', '{"waited": true}', '{"answer": []}'):
        with pytest.raises(BrokenError):
            frames.note(payload.encode())


@pytest.mark.parametrize("payload", ["{}", "[]", '{"question": "why"}', '{"question": ["clone"]}'])
def test_a_question_is_one_of_a_list(payload: str) -> None:
    with pytest.raises(BrokenError):
        frames.question(payload.encode())
    assert frames.question(b'{"question": "clone"}') == frames.CLONE


def test_a_question_has_the_reply_of_its_request() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send_json(theirs, frames.REPLY, 3, {"refusal": "a reason"})
        assert frames.ask(ours, 3, frames.CLONE) == "a reason"
        frames.send_json(theirs, frames.REPLY, 3, {"refusal": ""})
        assert frames.ask(ours, 3, frames.GO_ON) == ""
        frames.send_json(theirs, frames.REPLY, 4, {"refusal": ""})
        with pytest.raises(BrokenError, match="expected a reply in 3"):
            frames.ask(ours, 3, frames.GO_ON)

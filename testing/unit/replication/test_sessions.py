"""Sessions of pushes: bounded at the relay, hostile input in messages and at the wake socket."""

from __future__ import annotations

import json

import pytest

from hgfleet.hg import wake
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.primary import wake_server
from hgfleet.replication.primary.sessions import Sessions
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import PushMessage

ID = "1f2e3d4c5b6a7988"
IDENTITY = "7d" * 16
HEADS = Heads(digest=Heads.digest_of([]))
RECORD = Record(1, IDENTITY, "push", "alice", 1, FIRST, heads=HEADS)
NO_IDS = ["", "x", ID.upper(), f"{ID}\r\nX: y", f"{ID} event=x", ID * 2]


def test_the_newest_sessions_are_remembered() -> None:
    sessions = Sessions(most=2)
    for number, session in ((1, "a" * 16), (2, ""), (3, "c" * 16), (4, "d" * 16)):
        sessions.note(IDENTITY, number, session)
    assert [sessions.of(IDENTITY, number) for number in (1, 2, 3, 4)] == [
        *("", "", "c" * 16, "d" * 16)
    ]
    assert sessions.of("0" * 32, 3) == ""


def request(session: object) -> wake_server.Request | wake_server.DocumentRequest:
    data = json.loads(wake.line(wake.push_request("team/tool", IDENTITY, 1, FIRST), 2.0))
    return wake_server.parse(json.dumps({**data, "session": session}).encode())


def test_a_session_names_itself_to_the_relay() -> None:
    line = wake.line(wake.push_request("team/tool", IDENTITY, 1, FIRST, ID), 2.0)
    assert wake_server.parse(line) == wake_server.Request(IDENTITY, 1, 2.0, FIRST, ID)
    assert b"session" not in wake.line(wake.push_request("team/tool", IDENTITY, 1, FIRST), 2.0)


@pytest.mark.parametrize("session", [*NO_IDS, None, 1, [ID], {"a": ID}])
def test_a_push_with_a_session_that_is_none_is_published_all_the_same(session: object) -> None:
    assert request(session) == wake_server.Request(IDENTITY, 1, 2.0, FIRST)


def test_a_message_names_the_session() -> None:
    message = PushMessage("team/tool", RECORD.line(), RECORD, session=ID)
    assert messages.decode_push(message.headers(), message.body()) == message
    plain = PushMessage("team/tool", RECORD.line(), RECORD)
    assert messages.SESSION_HEADER not in plain.headers()


def test_a_message_names_the_hash_of_its_record_also_without_it() -> None:
    headers = PushMessage("team/tool", RECORD.line(), RECORD).headers()
    for told, expected in (
        (headers, hash_of(RECORD.line())),
        ({name: value for name, value in headers.items() if name != messages.HASH_HEADER}, ""),
        ({**headers, messages.HASH_HEADER: "x" * 64}, ""),
    ):
        with pytest.raises(messages.LargeRecordError) as caught:
            messages.decode_push(told, b"")
        assert (caught.value.repository, caught.value.number) == (IDENTITY, 1)
        assert caught.value.hash == expected


def test_a_mirror_says_the_hash_where_a_relay_of_the_release_before_does_not_look() -> None:
    applied = messages.Applied("hgweb1", IDENTITY, 1, hash_of(RECORD.line()))
    assert json.loads(applied.body()) == {"host": "hgweb1", "repository": IDENTITY, "id": 1}
    assert messages.decode_applied(applied.body(), applied.headers()) == applied
    plain = messages.Applied("hgweb1", IDENTITY, 1)
    assert plain.headers() == {}
    assert messages.decode_applied(plain.body()) == plain
    assert messages.decode_applied(plain.body(), {messages.HASH_HEADER: "../x"}) == plain


def test_fields_that_a_later_release_adds_are_left_out() -> None:
    applied = messages.Applied("hgweb1", IDENTITY, 1)
    more = {**json.loads(applied.body()), "hash": 7, "more": [1]}
    assert messages.decode_applied(json.dumps(more).encode()) == applied


@pytest.mark.parametrize("session", NO_IDS)
def test_a_message_with_a_session_that_is_none_is_applied_all_the_same(session: str) -> None:
    plain = PushMessage("team/tool", RECORD.line(), RECORD)
    headers = {**plain.headers(), messages.SESSION_HEADER: session}
    assert messages.decode_push(headers, plain.body()) == plain

"""Push events: when they are due, their content, and where they go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet.pushlog.log_file import Entry, Tip
from hgfleet.pushlog.record import Heads, Record, hash_of
from hgfleet.replication.primary.positions import Positions
from hgfleet.replication.protocol import events, messages
from hgfleet.replication.protocol.streams import Streamed

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = "7d" * 16
MIRRORS = ("hgweb1", "hgweb2")


def record(number: int = 2, **more: object) -> Record:
    fields: dict[str, object] = {
        "id": number,
        "repository": IDENTITY,
        "kind": "push",
        "user": "alice",
        "time": 1_795_440_000_123,
        "previous": "0" * 64,
        "key": "SHA256:secret",
        "client": "192.0.2.7",
        "heads": Heads(digest="0" * 64),
    }
    return Record(**(fields | more))  # type: ignore[arg-type]


def entry(number: int, **more: object) -> Entry:
    made = record(number, **more)
    return Entry(0, made.line(), made)


@pytest.mark.parametrize(
    ("showing", "live", "is_settled", "due"),
    [
        (("hgweb1", "hgweb2"), MIRRORS, True, True),
        (("hgweb1",), MIRRORS, True, False),
        ((), MIRRORS, True, False),
        (("hgweb1",), ("hgweb1",), True, True),
        (("hgweb2",), ("hgweb1",), True, False),
        # No mirror is alive: the push is published, and that is all there is.
        ((), (), True, True),
        # A mirror that is alive may not have been heard yet.
        ((), (), False, False),
        (("hgweb1",), ("hgweb1",), False, False),
        (MIRRORS, (), False, True),
    ],
)
def test_an_event_is_due_when_every_live_mirror_shows_the_push(
    showing: tuple[str, ...], live: tuple[str, ...], is_settled: bool, due: bool
) -> None:
    assert events.is_due(showing, live, MIRRORS, is_settled=is_settled) is due


def test_a_site_without_mirrors_announces_at_once() -> None:
    assert events.is_due((), (), (), is_settled=False)


def test_events_go_on_where_the_stream_is_or_where_the_relay_began() -> None:
    now = 1_795_440_000.0
    assert events.since(now, has_events=False) == now
    assert events.since(now, has_events=True) == now - 7 * 24 * 3600
    assert events.is_announced(entry(3), Streamed(3), now)
    assert not events.is_announced(entry(4), Streamed(3), now)
    # A promotion gave up the push that the event was of.
    assert not events.is_announced(entry(3, epoch=2), Streamed(3), now)
    assert events.is_announced(entry(2), Streamed(1, 2), now)
    assert Streamed(2, 2).is_after(Tip(3))
    assert not Streamed(3).is_after(Tip(2, epoch=2))
    assert not events.is_announced(entry(4), None, now)
    assert events.is_announced(entry(4), None, now + 1)
    # The stream has the event of another push; or it has no event of the push, or no hash.
    lost, kept = {3: "ab" * 32}, {2: "", 3: entry(3).hash}
    assert not events.is_announced(entry(3), Streamed(4), now, lost)
    for number in (2, 3):
        assert events.is_announced(entry(number), Streamed(4), now, kept)
    assert events.is_announced(entry(2), Streamed(4), now, lost)


def test_adoptions_and_removals_are_no_pushes() -> None:
    assert [kind for kind in ("push", "adoption", "strip") if events.has_event(record(kind=kind))]
    assert not events.has_event(record(kind="adoption"))


def test_an_event_has_the_push_and_neither_address_nor_key() -> None:
    a, b, c = "aa" * 20, "bb" * 20, "cc" * 20
    made = record(
        changesets=(a, b),
        heads=Heads((c,), (b,), "9" * 64),
        phases=((a, None, "public"), (b, None, "draft"), (c, "draft", "public")),
        bookmarks=(("@", None, b),),
        markers=("00", "01"),
    )
    content = events.body(made, "team/tool", is_public=True)
    assert b"192.0.2" not in content
    assert b"secret" not in content
    assert json.loads(content) == {
        "version": 1,
        "repository": "team/tool",
        "identity": IDENTITY,
        "public": True,
        "push": 2,
        "hash": hash_of(made.line()),
        "epoch": 1,
        "user": "alice",
        "time": 1_795_440_000.123,
        "changesets": {"count": 2, "first": a, "last": b, "nodes": [a, b]},
        "heads": {
            "removed": {"count": 1, "first": [c]},
            "added": {"count": 1, "first": [b]},
            "digest": "9" * 64,
        },
        "bookmarks": {"count": 1, "first": [{"name": "@", "from": None, "to": b}]},
        "phases": {"draft": 1, "public": 2},
        "obsolete": 2,
    }


def test_an_event_of_a_huge_push_is_small() -> None:
    nodes = tuple(f"{number:040x}" for number in range(5000))
    made = record(
        changesets=nodes,
        heads=Heads(nodes, nodes, "9" * 64),
        bookmarks=tuple((f"b{number}", None, nodes[0]) for number in range(5000)),
    )
    content = events.body(made, "team/tool", is_public=False)
    data = json.loads(content)
    assert (data["changesets"]["count"], data["changesets"]["last"]) == (5000, nodes[-1])
    assert len(data["changesets"]["nodes"]) == len(data["heads"]["added"]["first"]) == 100
    assert data["bookmarks"]["count"] == 5000
    assert len(content) < 64 * 1024


def test_an_event_is_read_as_it_was_written() -> None:
    content = events.body(record(7), "team/tool", is_public=False)
    event = events.decode(content)
    assert (event.path, event.repository, event.number) == ("team/tool", IDENTITY, 7)
    assert (event.is_public, event.id, event.body) == (False, f"{IDENTITY}.7", content)
    again = events.body(record(7), "team/tool", is_public=False, is_again=True)
    assert json.loads(again) == json.loads(content) | {"again": True}
    assert events.decode(again).id == f"{IDENTITY}.7.1.{json.loads(again)['hash'][:16]}"
    for hash_ in ("x", None, 7, "AB" * 32):
        wrong = json.loads(again) | {"hash": hash_}
        with pytest.raises(ValueError, match="no event of a push"):
            events.decode(json.dumps(wrong).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"repository": "../etc"},
        {"repository": None},
        {"identity": "7d"},
        {"identity": 1},
        {"push": 0},
        {"push": True},
        {"push": "1"},
        {"public": "yes"},
    ],
)
def test_an_event_from_elsewhere_is_refused(change: dict[str, object]) -> None:
    content = json.loads(events.body(record(), "team/tool", is_public=True)) | change
    with pytest.raises(ValueError, match="no event"):
        events.decode(json.dumps(content).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_text_that_is_no_event_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (json has sentences of its own)
        events.decode(content)


def test_positions_of_events_outlive_the_relay(tmp_path: Path) -> None:
    positions = Positions(tmp_path)
    assert positions.announced(IDENTITY) is None
    tip = Tip(3, "9" * 64, IDENTITY, 1234, 1)
    positions.announce(IDENTITY, tip)
    positions.close()
    again = Positions(tmp_path)
    assert again.announced(IDENTITY) == tip
    again.close()


def test_a_question_names_a_bounded_number_of_repositories() -> None:
    asked = messages.Asked(tuple(f"{number:032x}" for number in range(1000)))
    question = messages.decode_asked(asked.body())
    assert question.repositories == asked.repositories[: messages.MOST_ASKED]
    for wrong in (b"{}", b'{"repositories": "x"}', b'{"repositories": [1]}', b"["):
        with pytest.raises(ValueError):  # noqa: PT011
            messages.decode_asked(wrong)

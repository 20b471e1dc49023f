"""The last push whose event is out: known here, or asked of the stream."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import HgfleetError
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.primary import announcer
from hgfleet.replication.primary.announcer import SINCE, Announcer
from hgfleet.replication.primary.positions import Positions
from hgfleet.replication.primary.visibility import Shown
from hgfleet.replication.protocol import events, messages
from hgfleet.replication.protocol.streams import Streamed
from hgfleet.replication.terms import given_up

if TYPE_CHECKING:
    from pathlib import Path

ID = "1f" * 16
FIVE, SEVEN = (Tip(number, "ab" * 32, ID) for number in (5, 7))


class Broker:
    """A broker with a stream, with or without events, that says how far the stream is."""

    def __init__(self, streamed: object, has_events: bool | None) -> None:
        self.streamed_one = streamed
        self.stream = None if has_events is None else SimpleNamespace(has_events=has_events)
        self.asked: list[str] = []

    async def streamed(self, repository: str, _stream: str) -> Any:
        self.asked.append(repository)
        return self.streamed_one


def streamed(number: int) -> Any:
    return SimpleNamespace(is_after=lambda tip: number > tip.id)


def ask(
    folder: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, known: Tip | None, reached: Tip
) -> tuple[list[Tip], list[tuple[Tip, object]]]:
    """Ask twice for a position; return both, and how the push log was read."""
    read: list[tuple[Tip, object]] = []

    def first(_store: Path, tip: Tip, told: object, begin: float, out: dict[int, str]) -> Tip:
        assert (begin, out) == (3.0, {})
        read.append((tip, told))
        return reached

    monkeypatch.setattr(announcer, "_first", first)
    positions = Positions(folder)
    positions.note(SINCE, "3.0")
    if known is not None:
        positions.announce(ID, known)
    settings = SimpleNamespace(lease_seconds=3.0, terms=folder)
    made: Any = Announcer
    relay = made(settings, positions, broker, None, None, None, None)

    async def twice() -> list[Tip]:
        return [await relay._position(ID, folder) for _ in range(2)]

    try:
        return asyncio.run(twice()), read
    finally:
        positions.close()


@pytest.mark.parametrize(
    ("known", "has_events", "at", "asked", "reads"),
    [
        # Nothing is known here: the stream is asked, if it has events at all.
        (None, True, 7, True, [(Tip(), 7)]),
        (None, False, 7, False, [(Tip(), None)]),
        (None, None, 7, False, [(Tip(), None)]),
        # A relay that was killed: the stream may be further than its position.
        (FIVE, True, 7, True, [(FIVE, 7)]),
        (FIVE, True, 5, True, []),
        # Nothing reads the log where both agree.
        (SEVEN, True, 7, True, []),
    ],
)
def test_the_stream_is_asked_once_a_connection(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    known: Tip | None,
    has_events: bool | None,
    at: int,
    asked: bool,
    reads: list[tuple[Tip, int | None]],
) -> None:
    told = streamed(at)
    broker = Broker(told, has_events)
    tips, read = ask(tmp_path, broker, monkeypatch, known, SEVEN)
    assert broker.asked == [ID] * asked
    assert read == [(tip, None if number is None else told) for tip, number in reads]
    assert tips == [SEVEN if reads or known is None else known] * 2


def test_a_log_of_another_repository_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = Tip(7, "ab" * 32, "2f" * 16)
    with pytest.raises(HgfleetError, match="belongs to repository 2f2f"):
        ask(tmp_path, Broker(None, True), monkeypatch, None, other)


@pytest.mark.parametrize("is_published", [True, False])
def test_an_event_is_of_the_push_that_was_published_and_not_of_another_of_its_number(
    tmp_path: Path, *, is_published: bool
) -> None:
    store = tmp_path / "a/.hg/store"
    store.mkdir(parents=True)
    record = Record(1, ID, "push", "alice", 4_000, FIRST, heads=Heads(digest="0" * 64))
    (store / "pushlog").write_bytes(record.line() + b"\n")
    hash_ = hash_of(record.line()) if is_published else "cd" * 32
    sent: list[dict[str, str]] = []

    async def publish(*arguments: Any) -> tuple[int, bool]:
        sent.append(arguments[3])
        return 1, False

    positions, shown = Positions(tmp_path), Shown()
    positions.note(SINCE, "3.0")
    settings = SimpleNamespace(lease_seconds=3.0, repositories=tmp_path, terms=tmp_path)
    broker = SimpleNamespace(publish=publish, stream=None)
    members = SimpleNamespace(live=lambda _: ("hgweb1",), mirrors=("hgweb1",))
    registry = SimpleNamespace(repositories={})
    served = SimpleNamespace(place=lambda _: "a", registry=lambda: registry)
    made: Any = Announcer
    said: list[str] = []
    relay = made(
        settings, positions, broker, shown, members, served, lambda event, **_: said.append(event)
    )
    shown.published(ID, 1, hash_)
    # The mirror shows the push that was published.
    shown.applied("hgweb1", ID, 1, hash_)
    relay.published(ID, 1, hash_)
    asyncio.run(relay._look(ID))
    positions.close()
    if is_published:
        assert [headers[messages.HASH_HEADER] for headers in sent] == [hash_]
        assert said == ["announced"]
    else:
        assert sent == []
        assert said == ["unannounced"]


def log_of(folder: Path, users: str) -> list[str]:
    """Write a push log with a push of each user; return the hashes by number, from 1 on."""
    store = folder / "a/.hg/store"
    store.mkdir(parents=True, exist_ok=True)
    lines, hashes = b"", [FIRST]
    for number, user in enumerate(users, 1):
        heads = Heads(digest="0" * 64)
        line = Record(number, ID, "push", user, 4_000, hashes[-1], heads=heads).line()
        lines += line + b"\n"
        hashes.append(hash_of(line))
    (store / "pushlog").write_bytes(lines)
    return hashes


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(("lost", "after"), [("aaaa", "aaabb"), ("aaaaa", "aabb"), ("aaa", "bbb")])
def test_pushes_after_a_loss_have_events_and_names_of_their_own(
    tmp_path: Path, lost: str, after: str, *, is_known: bool
) -> None:
    """The last pushes were lost, and others recorded before the fence; then it was lifted."""
    out = dict(enumerate(log_of(tmp_path, lost)))
    del out[0]
    given_up.note(tmp_path, 2, [(ID, len(lost), out[len(lost)])])
    hashes = log_of(tmp_path, after)
    sent: list[tuple[bytes, dict[str, str]]] = []

    async def publish(*arguments: Any) -> tuple[int, bool]:
        sent.append(arguments[2:])
        return len(sent), False

    async def streamed_now(*_: Any) -> Streamed:
        return Streamed(len(lost), 1, out[len(lost)])

    async def announced(_repository: str) -> dict[int, str]:
        return out

    positions, shown = Positions(tmp_path), Shown()
    positions.note(SINCE, "3.0")
    settings = SimpleNamespace(lease_seconds=3.0, repositories=tmp_path, terms=tmp_path)
    broker = SimpleNamespace(
        publish=publish,
        streamed=streamed_now,
        announced=announced,
        stream=SimpleNamespace(has_events=True),
    )
    members = SimpleNamespace(live=lambda _: (), mirrors=())
    served = SimpleNamespace(place=lambda _: "a", registry=lambda: SimpleNamespace(repositories={}))
    made: Any = Announcer
    relay = made(settings, positions, broker, shown, members, served, lambda *_, **__: None)
    if is_known:
        # A relay that was killed after the lift left this position.
        positions.announce(ID, Tip())
    shown.published(ID, len(after), hashes[-1])
    relay.published(ID, len(after), hashes[-1])
    asyncio.run(relay._look(ID))
    positions.close()
    first = after.index("b") + 1
    expected = range(first, len(after) + 1)
    published = [events.decode(body) for body, _ in sent]
    assert [event.number for event in published] == list(expected)
    assert [headers[messages.HASH_HEADER] for _, headers in sent] == hashes[first:]
    # Receivers know the names of the lost pushes.
    names = [event.id for event in published]
    last = len(lost)
    assert names == [f"{ID}.{n}.1.{hashes[n][:16]}" if n <= last else f"{ID}.{n}" for n in expected]

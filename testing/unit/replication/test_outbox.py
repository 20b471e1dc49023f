"""The outbox: the committed part of a push log, and the next push for the stream."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.pushlog.committed import Stamp
from hgfleet.pushlog.log_file import Entry, Tip
from hgfleet.pushlog.record import Heads, Record, hash_of
from hgfleet.replication.primary import outbox
from hgfleet.replication.primary.outbox import LOST, Position, Queue
from hgfleet.replication.primary.positions import FILE, Positions
from hgfleet.replication.protocol.messages import PushMessage
from hgfleet.replication.protocol.streams import Streamed
from hgfleet.replication.repositories import log_reader

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = "7d" * 16


def write(store: Path, count: int) -> list[Entry]:
    """Write a log with so many records."""
    entries: list[Entry] = []
    tip = Tip()
    for number in range(1, count + 1):
        record = Record(
            number, IDENTITY, "push", "alice", number, tip.hash, heads=Heads(digest="0" * 64)
        )
        entries.append(Entry(tip.end, record.line(), record))
        tip = outbox.after(tip, entries[-1:])
    (store / "pushlog").write_bytes(b"".join(entry.line + b"\n" for entry in entries))
    return entries


def position(store: Path, entries: list[Entry], **more: int) -> Position:
    stamp = log_reader.stamp(store)
    assert stamp is not None
    return Position(IDENTITY, outbox.after(Tip(), entries), stamp, **more)


# Committed records.


def test_records_of_an_open_transaction_are_not_committed(tmp_path: Path) -> None:
    entries = write(tmp_path, 3)
    assert log_reader.read(tmp_path) == entries
    assert log_reader.read(tmp_path, entries[1].offset) == entries[1:]
    assert log_reader.last(tmp_path) == entries[2:]
    (tmp_path / "journal").write_bytes(b"00changelog.i\x0012\n")
    assert log_reader.read(tmp_path) == entries
    (tmp_path / "journal").write_bytes(b"pushlog\x00%d\n" % entries[2].offset)
    assert log_reader.read(tmp_path) == entries[:2]
    assert log_reader.last(tmp_path) == entries[1:2]


def test_a_missing_log_has_no_records(tmp_path: Path) -> None:
    assert log_reader.read(tmp_path) == log_reader.last(tmp_path) == []
    assert log_reader.stamp(tmp_path) is None


def test_the_last_record_is_found_behind_long_ones(tmp_path: Path) -> None:
    long = Record(
        1,
        IDENTITY,
        "push",
        "alice",
        1,
        "0" * 64,
        changesets=tuple(f"{number:040x}" for number in range(5000)),
        heads=Heads(digest="0" * 64),
    )
    (tmp_path / "pushlog").write_bytes(long.line() + b"\n")
    (entry,) = log_reader.last(tmp_path)
    assert entry == Entry(0, long.line(), long)
    second = replace(long, id=2, previous=hash_of(long.line()))
    with (tmp_path / "pushlog").open("ab") as log:
        log.write(second.line() + b"\n")
    assert log_reader.last(tmp_path) == [Entry(entry.end, second.line(), second)]


# The published pushes.


def test_a_log_is_read_again_when_it_changed_or_the_stream_lost_it(tmp_path: Path) -> None:
    entries = write(tmp_path, 2)
    done = position(tmp_path, entries)
    assert outbox.is_read(done, done.stamp)
    assert outbox.is_read(None, None)
    assert not outbox.is_read(None, done.stamp)
    assert not outbox.is_read(done, done.stamp._replace(inode=1))
    assert not outbox.is_read(position(tmp_path, entries[:1]), done.stamp)
    assert not outbox.is_read(position(tmp_path, entries, sequence=LOST), done.stamp)


def test_a_log_holds_the_record_of_its_position_or_not(tmp_path: Path) -> None:
    entries = write(tmp_path, 3)
    tips = [outbox.after(Tip(), entries[:count]) for count in range(4)]
    assert all(log_reader.holds(tmp_path, tip) for tip in tips)
    assert not log_reader.holds(tmp_path, tips[3]._replace(hash="ff" * 32))
    assert not log_reader.holds(tmp_path, tips[3]._replace(end=tips[3].end - 1))
    log = tmp_path / "pushlog"
    whole = log.read_bytes()
    for count in range(3):
        log.write_bytes(whole[: tips[count].end])
        assert log_reader.holds(tmp_path, tips[count])
        assert not log_reader.holds(tmp_path, tips[3])
    # Another record of the same number and length.
    other = entries[2].line.replace(b"alice", b"mallo")
    log.write_bytes(whole[: tips[2].end] + other + b"\n")
    assert not log_reader.holds(tmp_path, tips[3])
    # An open transaction can be undone.
    log.write_bytes(whole)
    (tmp_path / "journal").write_bytes(b"pushlog\x00%d\n" % entries[2].offset)
    assert not log_reader.holds(tmp_path, tips[3])
    (tmp_path / "journal").unlink()
    log.unlink()
    assert not log_reader.holds(tmp_path, tips[1])
    assert log_reader.holds(tmp_path, Tip())


def test_the_hashes_of_the_last_records_are_read_backwards(tmp_path: Path) -> None:
    entries = write(tmp_path, 5)
    tip = outbox.after(Tip(), entries[:4])
    wanted = {entry.record.id: entry.hash for entry in entries}
    assert log_reader.hashes(tmp_path, tip, 2) == {n: wanted[n] for n in (3, 4)}
    assert log_reader.hashes(tmp_path, tip, 9) == {n: wanted[n] for n in (1, 2, 3, 4)}
    assert log_reader.find(tmp_path, 3) == entries[2]
    assert log_reader.find(tmp_path, 6) is None


def test_a_missing_log_of_which_pushes_were_published_is_looked_at(tmp_path: Path) -> None:
    entries = write(tmp_path, 1)
    assert not outbox.is_read(position(tmp_path, entries), None)
    assert outbox.is_read(position(tmp_path, []), None)
    assert outbox.is_read(None, None)


def test_published_is_what_the_stream_has_by_number_epoch_and_hash(tmp_path: Path) -> None:
    entries = write(tmp_path, 3)
    second = entries[1]
    assert outbox.published(entries, Streamed(2, 1, second.hash)) == entries[:2]
    assert outbox.published(entries, Streamed(2)) == entries[:2]
    assert outbox.published(entries, Streamed(2, 1, "ff" * 32)) == entries[:1]


def test_messages_beyond_the_last_one_of_a_stream_are_lost(tmp_path: Path) -> None:
    entries = write(tmp_path, 1)
    positions = [position(tmp_path, entries, sequence=number) for number in (0, 5, 6)]
    assert outbox.lost(positions, 5, is_new=False) == positions[2:]
    assert outbox.lost(positions, 9, is_new=True) == positions


def test_a_body_fits_into_a_message_of_the_broker(tmp_path: Path) -> None:
    (entry,) = write(tmp_path, 1)
    message = PushMessage("team/tool", entry.line, entry.record, b"x" * 1000)
    size = len(entry.line) + 1
    assert outbox.body(message, size + 1000) == message.body()
    assert outbox.body(message, size + 999) == entry.line + b"\n"
    assert outbox.body(message, size - 1) == b""


def test_a_repository_has_one_worker_and_waiting_pushers_come_first() -> None:
    queue = Queue()
    for path in ("a", "b", "a"):
        queue.add(path)
    queue.add("c", first=True)
    assert [queue.take(), queue.take()] == ["c", "a"]
    queue.add("a", first=True)
    assert [queue.take(), queue.take()] == ["b", None]
    assert len(queue) == 4
    queue.done("a")
    assert queue.take() == "a"


def test_the_wait_of_a_repository_goes_on_while_the_broker_refuses_its_message() -> None:
    now = 100.0
    queue = Queue(lambda: now)
    assert (queue.longest(), queue.late(0.0)) == (0.0, [])
    queue.add("a")
    now = 101.0
    queue.add("b")
    now = 110.0
    assert (queue.longest(), queue.late(9.5)) == (10.0, ["a"])
    assert queue.take() == "a"
    queue.add("a")
    queue.done("a", refused=True)
    assert (queue.longest(), queue.late(9.0)) == (10.0, ["a", "b"])
    # Of a repository with pushes that come and go, only the last wait counts.
    assert [queue.take(), queue.take()] == ["b", "a"]
    queue.add("a")
    queue.done("a")
    queue.done("b")
    assert (queue.longest(), queue.late(0.0)) == (0.0, ["a"])


# Positions.


def test_positions_survive_and_a_corrupt_file_is_as_good_as_none(tmp_path: Path) -> None:
    saved = position(tmp_path, write(tmp_path, 2), sequence=9)
    first = Positions(tmp_path)
    first.save(saved)
    first.note("stream", "today")
    first.close()
    second = Positions(tmp_path)
    assert second.get(IDENTITY) == saved
    assert list(second) == [saved]
    assert second.fact("stream") == "today"
    second.announce(IDENTITY, saved.tip)
    second.forget(IDENTITY)
    second.close()
    again = Positions(tmp_path)
    assert list(again) == []
    assert again.announced(IDENTITY) is None
    again.close()
    (tmp_path / FILE).write_bytes(b"nonsense " * 1000)
    third = Positions(tmp_path)
    assert third.get(IDENTITY) is None
    third.save(saved)
    assert third.get(IDENTITY) == saved


FORMER = """
create table positions_1 (
    path text primary key, repository text, id integer, hash text, end integer, epoch integer,
    inode integer, size integer, changed integer, sequence integer);
"""


def test_positions_of_the_release_before_are_taken_over_by_identity(tmp_path: Path) -> None:
    """It knew them by path: a former path of a renamed repository had a position, too."""
    Positions(tmp_path).close()
    file = sqlite3.connect(tmp_path / FILE)
    file.executescript(FORMER)
    rows = [
        ("a/old", IDENTITY, 3, "a" * 64, 300, 1, 1, 300, 5, 7),
        ("a/new", IDENTITY, 4, "b" * 64, 400, 1, 2, 400, 6, 8),
        ("a/older", IDENTITY, 2, "c" * 64, 200, 1, 3, 200, 4, 6),
        ("empty", "", 0, "0" * 64, 0, 1, 4, 0, 3, 0),
    ]
    file.executemany("insert into positions_1 values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    file.commit()
    file.close()
    positions = Positions(tmp_path)
    expected = Position(IDENTITY, Tip(4, "b" * 64, IDENTITY, 400), Stamp(2, 400, 6), 8)
    assert list(positions) == [expected]
    positions.save(replace(expected, sequence=9))
    positions.close()
    # Once: later positions stay.
    assert [kept.sequence for kept in Positions(tmp_path)] == [9]


def test_the_hash_tells_a_push_of_the_same_number_apart() -> None:
    tip = Tip(3, "a" * 64, IDENTITY, 300)
    assert Streamed(3).is_at(tip)
    assert Streamed(3, 1, "a" * 64).is_at(tip)
    assert Streamed(3, 1, "b" * 64).differs(tip)
    for other in (Streamed(3, 1, "b" * 64), Streamed(2), Streamed(3, 2)):
        assert not other.is_at(tip)
    assert not Streamed(2, 1, "b" * 64).differs(tip)

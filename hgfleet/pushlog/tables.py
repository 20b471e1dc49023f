"""Tables of pushes in SQLite: filled from records, queried by id, time, user and changeset.

The index of a repository has these tables on disk, and a reader has them in memory for the records
that the index does not cover, so the same queries work on both. They do not contain addresses of
clients and keys.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from hgfleet.pushlog.committed import CommittedLog
    from hgfleet.pushlog.log_file import Entry
    from hgfleet.pushlog.record import Record

VERSION: Final = 1
"""Version of the tables; an index of another version is built again."""

DIGESTED: Final = 4096
"""Bytes at the end of the covered part; their digest ties the tables to the log. They include the
last record with its time and the hash of the record before."""

_SCHEMA: Final = """
CREATE TABLE covered (version INT, identity TEXT, id INT, hash TEXT, end INT, digest TEXT);
CREATE TABLE pushes (
    id INTEGER PRIMARY KEY, kind TEXT, user TEXT, time INT, via TEXT, changesets INT, offset INT);
CREATE INDEX pushes_time ON pushes (time);
CREATE INDEX pushes_user ON pushes (user, id);
CREATE TABLE contents (push INTEGER PRIMARY KEY, nodes BLOB);
CREATE TABLE changesets (node BLOB, push INT, PRIMARY KEY (node, push)) WITHOUT ROWID;
"""

_NODE_BYTES: Final = 20


class Covered(NamedTuple):
    """The part of a log that the tables cover: its chain up to a record."""

    identity: str = ""
    id: int = 0
    hash: str = ""
    end: int = 0
    """The offset after that record (bytes)."""
    digest: str = ""

    def fits(self, log: CommittedLog) -> bool:
        """Whether the log has exactly this part."""
        return self.end <= log.end and self.digest == digest_of(log, self.end)

    def following(self, log: CommittedLog) -> Iterator[Entry]:
        """Read the records after this part; raises PushlogError if the chain is broken."""
        tip = Tip(self.id, self.hash or FIRST, self.identity, self.end)
        for entry in log.entries(self.end):
            wrong = chain.problem(tip, entry.record)
            if wrong is not None:
                raise PushlogError(f"the chain is broken at byte {entry.offset}: {wrong}")
            yield entry
            record = entry.record
            tip = Tip(record.id, entry.hash, record.repository, entry.end, record.epoch)


class Push(NamedTuple):
    """A push without its changesets. `time` is in milliseconds since 1970, UTC."""

    id: int
    kind: str
    user: str
    time: int
    via: str
    """The kind of the proof of identity: "key", "certificate" or "operator"."""
    changesets: int
    """The number of changesets."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions on pushes, all of which hold; None and empty values do not count."""

    after_id: int | None = None
    to_id: int | None = None
    """The last id, included."""
    from_time: int | None = None
    """Milliseconds, included."""
    until_time: int | None = None
    """Milliseconds, not included."""
    users: tuple[str, ...] = ()
    ids: tuple[int, ...] | None = None
    kinds: tuple[str, ...] = ()
    has_changesets: bool = False
    """Whether pushes without changesets are left out: pushes of phases, bookmarks and markers."""


def via(record: Record) -> str:
    """Return the kind of proof that a record names."""
    if record.key.startswith("certificate:"):
        return "certificate"
    return "key" if record.key else "operator"


def digest_of(log: CommittedLog, end: int) -> str:
    """Return the digest of the last bytes of a log before an offset."""
    last = log.read(max(0, end - DIGESTED), end)
    return hashlib.blake2b(last, digest_size=16).hexdigest()


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, empty."""
    connection.executescript(_SCHEMA)


def covered(connection: sqlite3.Connection) -> Covered | None:
    """Return the covered part; None if the tables have another version."""
    row = connection.execute(
        "SELECT version, identity, id, hash, end, digest FROM covered"
    ).fetchone()
    if row is None:
        return Covered()
    return Covered(*row[1:]) if row[0] == VERSION else None


def insert(connection: sqlite3.Connection, entries: Iterable[Entry]) -> Entry | None:
    """Add records; return the last record."""
    last = None
    for last in entries:
        record = last.record
        # A strip's changesets are the removed changesets.
        named = record.changesets if record.kind != "strip" else ()
        nodes = bytes.fromhex("".join(named))
        row = (
            record.id,
            record.kind,
            record.user,
            record.time,
            via(record),
            len(named),
            last.offset,
        )
        connection.execute("INSERT INTO pushes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO contents VALUES (?, ?)", (record.id, nodes))
        connection.executemany(
            "INSERT OR IGNORE INTO changesets VALUES (?, ?)",
            ((node, record.id) for node in _split(nodes)),
        )
    return last


def mark(connection: sqlite3.Connection, log: CommittedLog, last: Entry) -> None:
    """Record that the tables cover a log up to a record."""
    record = last.record
    row = (
        VERSION,
        record.repository,
        record.id,
        last.hash,
        last.end,
        digest_of(log, last.end),
    )
    connection.execute("DELETE FROM covered")
    connection.execute("INSERT INTO covered VALUES (?, ?, ?, ?, ?, ?)", row)


def select(
    connection: sqlite3.Connection,
    wanted: Selection,
    limit: int,
    *,
    newest_first: bool = False,
    skip: int = 0,
) -> list[Push]:
    """Return the pushes that match, in the order of their ids."""
    condition, values = _where(wanted)
    order = "DESC" if newest_first else "ASC"
    # The text contains no value of a client: these are placeholders.
    text = (
        "SELECT id, kind, user, time, via, changesets FROM pushes"  # noqa: S608
        f" WHERE {condition} ORDER BY id {order} LIMIT ? OFFSET ?"
    )
    return [Push(*row) for row in connection.execute(text, (*values, limit, skip))]


def count(connection: sqlite3.Connection, wanted: Selection) -> int:
    """Return the number of pushes that match."""
    condition, values = _where(wanted)
    text = f"SELECT count(*) FROM pushes WHERE {condition}"  # noqa: S608  (placeholders)
    return int(connection.execute(text, values).fetchone()[0])


def nodes(connection: sqlite3.Connection, push: int) -> list[bytes]:
    """Return the changesets of a push, parents first."""
    row = connection.execute("SELECT nodes FROM contents WHERE push = ?", (push,)).fetchone()
    return _split(row[0]) if row else []


def named(connection: sqlite3.Connection, prefix: str) -> list[tuple[bytes, int]]:
    """Return up to three changesets with a hexadecimal prefix, each with its newest push."""
    low = bytes.fromhex(prefix.ljust(2 * _NODE_BYTES, "0"))
    high = bytes.fromhex(prefix.ljust(2 * _NODE_BYTES, "f"))
    text = "SELECT node, max(push) FROM changesets WHERE node BETWEEN ? AND ? GROUP BY node LIMIT 3"
    return [(row[0], row[1]) for row in connection.execute(text, (low, high))]


def _where(wanted: Selection) -> tuple[str, list[Any]]:
    """Return the condition in SQL, of placeholders, and its values."""
    conditions = ["changesets > 0" if wanted.has_changesets else "1"]
    values: list[Any] = []
    for text, value in (
        ("id > ?", wanted.after_id),
        ("id <= ?", wanted.to_id),
        ("time >= ?", wanted.from_time),
        ("time < ?", wanted.until_time),
    ):
        if value is not None:
            conditions.append(text)
            values.append(value)
    lists: tuple[tuple[str, Sequence[Any] | None], ...] = (
        ("user", wanted.users or None),
        ("id", wanted.ids),
        ("kind", wanted.kinds or None),
    )
    for column, allowed in lists:
        if allowed is not None:
            conditions.append(f"{column} IN ({', '.join('?' * len(allowed))})")
            values += allowed
    return " AND ".join(conditions), values


def _split(joined: bytes) -> list[bytes]:
    return [joined[start : start + _NODE_BYTES] for start in range(0, len(joined), _NODE_BYTES)]

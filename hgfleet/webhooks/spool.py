"""Events that wait for their receivers, and those that were given up: an SQLite file.

An event is stored for each of its receivers in one transaction before it is acknowledged to the
broker, and leaves when the receiver has it. So neither a broker nor a kill of the daemon loses one,
and the attempts and the order of each repository outlive a restart.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.core.errors import HostError
from hgfleet.replication.events import Event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

FILE: Final = "spool.sqlite"

MOST_WAITING: Final = 10_000
"""Events that wait for one receiver; further ones are dead at once."""

MOST_DEAD: Final = 10_000
"""Dead events of one receiver; beyond that the oldest are dropped."""

BUSY_SECONDS: Final = 10.0
"""For a command and the daemon to wait for each other."""

_SCHEMA: Final = """
create table if not exists received_1 (repository text primary key, number integer) without rowid;
create table if not exists epochs_1 (repository text primary key, epoch integer) without rowid;
create table if not exists deliveries_1 (
    receiver text, repository text, number integer, path text, public integer, body blob,
    received real, attempts integer, due real, dead integer, reason text);
create unique index if not exists places_1 on deliveries_1 (receiver, repository, number);
create index if not exists lines_1 on deliveries_1 (receiver, dead, repository, number, due);
"""

_SELECT: Final = (
    "select receiver, path, repository, number, public, body, received, attempts, reason "
    "from deliveries_1 where "
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event for a receiver. `received` is in seconds since 1970."""

    receiver: str
    event: Event
    received: float
    attempts: int = 0
    """Those that have begun."""
    reason: str = ""
    """Why the last attempt failed."""


class Line(NamedTuple):
    """The first delivery of a repository that waits for a receiver, and when it is tried."""

    repository: str
    number: int
    due: float


@dataclass(frozen=True, slots=True)
class Count:
    """Deliveries of a receiver: those that wait, the oldest arrival among them, dead ones."""

    waiting: int = 0
    oldest: float = 0.0
    dead: int = 0
    reason: str = ""
    """Why the last attempt of the delivery that was tried most often failed."""


class Spool:
    """The file. For one thread; other processes may use it at the same time."""

    def __init__(self, folder: Path) -> None:
        try:
            self._file = sqlite3.connect(folder / FILE, isolation_level=None, timeout=BUSY_SECONDS)
            self._file.execute("pragma journal_mode=wal")
            self._file.execute("pragma synchronous=full")
            self._file.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise HostError(
                f"{folder / FILE}: {error}; a damaged file may be moved away: the events in it "
                "are lost, and the push logs have their pushes"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._file.execute("rollback")
            raise
        self._file.execute("commit")

    # -- arrival ---------------------------------------------------------------------------------

    def is_new(self) -> bool:
        """Whether no event has ever arrived."""
        return self._file.execute("select 1 from received_1 limit 1").fetchone() is None

    def receive(self, event: Event, receivers: Collection[str], now: float) -> bool:
        """Store an event for its receivers; return False for one that had arrived already."""
        with self._transaction():
            row = self._file.execute(
                "select coalesce(epoch, 1), number from received_1 "
                "left join epochs_1 using (repository) where repository = ?",
                (event.repository,),
            ).fetchone()
            # After a promotion numbers begin again behind the last push that was kept.
            if row is not None and (event.epoch, event.number) <= row:
                return False
            for table, value in (("received_1", event.number), ("epochs_1", event.epoch)):
                self._file.execute(
                    f"insert or replace into {table} values (?, ?)",  # noqa: S608  (names above)
                    (event.repository, value),
                )
            for receiver in receivers:
                self._insert(Delivery(receiver, event, now))
        return True

    def _insert(self, delivery: Delivery) -> None:
        is_full = self._number(delivery.receiver, dead=False) >= MOST_WAITING
        reason = f"more than {MOST_WAITING} events wait for this receiver" if is_full else ""
        event = delivery.event
        self._file.execute(
            "insert or replace into deliveries_1 values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(delivery.receiver, event.repository, event.number, event.path),
                *(event.is_public, event.body, delivery.received, 0, delivery.received),
                *(is_full, reason),
            ),
        )
        if is_full:
            self._forget(delivery.receiver)

    def _number(self, receiver: str, *, dead: bool) -> int:
        query = "select count(*) from deliveries_1 where receiver = ? and dead = ?"
        number: int = self._file.execute(query, (receiver, dead)).fetchone()[0]
        return number

    # -- attempts --------------------------------------------------------------------------------

    def lines(self, receiver: str) -> list[Line]:
        """Return the first delivery of each repository, by the time of its next attempt."""
        # Of min() the other columns are those of its row; the index has all of them.
        rows = self._file.execute(
            "select repository, min(number), due from deliveries_1 "
            "where receiver = ? and dead = 0 group by repository order by due",
            (receiver,),
        )
        return [Line(*row) for row in rows]

    def begin(self, receiver: str, line: Line) -> Delivery | None:
        """Count an attempt and return the delivery; None if it is gone.

        The count is stored before the request: while the disk is full, no receiver gets an event
        again and again.
        """
        self._file.execute(
            "update deliveries_1 set attempts = attempts + 1 "
            "where receiver = ? and dead = 0 and repository = ? and number = ?",
            (receiver, line.repository, line.number),
        )
        row = self._file.execute(
            _SELECT + "receiver = ? and dead = 0 and repository = ? and number = ?",
            (receiver, line.repository, line.number),
        ).fetchone()
        return None if row is None else _delivery(row)

    def delivered(self, delivery: Delivery) -> None:
        """Remove a delivery that the receiver has."""
        self._file.execute(
            "delete from deliveries_1 where receiver = ? and dead = 0 and repository = ? "
            "and number = ?",
            (delivery.receiver, delivery.event.repository, delivery.event.number),
        )

    def failed(self, delivery: Delivery, due: float | None, reason: str) -> None:
        """Note a failed attempt, and the time of the next one; None is none."""
        with self._transaction():
            self._file.execute(
                "update deliveries_1 set due = ?, dead = ?, reason = ? "
                "where receiver = ? and dead = 0 and repository = ? and number = ?",
                (
                    *(due or 0.0, due is None, reason),
                    *(delivery.receiver, delivery.event.repository, delivery.event.number),
                ),
            )
            if due is None:
                self._forget(delivery.receiver)

    def _forget(self, receiver: str) -> None:
        """Drop the oldest dead events beyond the bound."""
        surplus = self._number(receiver, dead=True) - MOST_DEAD
        if surplus > 0:
            oldest = self._file.execute(
                "select repository, number from deliveries_1 where receiver = ? and dead = 1 "
                "order by received limit ?",
                (receiver, surplus),
            ).fetchall()
            self._file.executemany(
                "delete from deliveries_1 where receiver = ? and dead = 1 and repository = ? "
                "and number = ?",
                [(receiver, *row) for row in oldest],
            )

    # -- the dead-letter list --------------------------------------------------------------------

    def dead(self, receiver: str = "") -> list[Delivery]:
        """Return the dead deliveries, of one receiver or of all, in the order of their arrival."""
        rows = self._file.execute(
            _SELECT + "dead = 1 and ? in ('', receiver) order by received, number",
            (receiver,),
        )
        return [_delivery(row) for row in rows]

    def retry(self, deliveries: Iterable[Delivery], now: float) -> None:
        """Have dead deliveries tried again, for as long as new ones."""
        with self._transaction():
            self._file.executemany(
                "update deliveries_1 set dead = 0, attempts = 0, received = ?, due = ? "
                "where receiver = ? and dead = 1 and repository = ? and number = ?",
                [
                    (now, now, one.receiver, one.event.repository, one.event.number)
                    for one in deliveries
                ],
            )

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """Remove dead deliveries."""
        with self._transaction():
            self._file.executemany(
                "delete from deliveries_1 where receiver = ? and dead = 1 and repository = ? "
                "and number = ?",
                [(one.receiver, one.event.repository, one.event.number) for one in deliveries],
            )

    def keep(self, receivers: Collection[str]) -> int:
        """Remove what waits for other receivers than these; return how many deliveries did."""
        marks = ", ".join("?" * len(receivers))
        found = self._file.execute(
            f"delete from deliveries_1 where dead = 0 and receiver not in ({marks})",  # noqa: S608  (marks)
            tuple(receivers),
        )
        return found.rowcount

    def counts(self) -> dict[str, Count]:
        """Count the deliveries of each receiver that has some."""
        rows = self._file.execute(
            "select receiver, sum(dead = 0), min(case when dead = 0 then received end), "
            "sum(dead = 1) from deliveries_1 group by receiver"
        )
        return {row[0]: Count(row[1], row[2] or 0.0, row[3], self._reason(row[0])) for row in rows}

    def _reason(self, receiver: str) -> str:
        row = self._file.execute(
            "select reason from deliveries_1 where receiver = ? and dead = 0 "
            "order by attempts desc limit 1",
            (receiver,),
        ).fetchone()
        return "" if row is None else str(row[0])


def _delivery(row: tuple[Any, ...]) -> Delivery:
    receiver, path, repository, number, public, body, received, attempts, reason = row
    event = Event(path, repository, number, bool(public), body, _epoch(body))
    return Delivery(receiver, event, received, attempts, reason)


def _epoch(body: bytes) -> int:
    """Return the epoch of a stored event; one of the release before has none."""
    epoch = json.loads(body).get("epoch", 1)
    return epoch if isinstance(epoch, int) else 1

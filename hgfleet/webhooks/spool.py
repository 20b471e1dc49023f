"""Events that wait for their endpoints, and those that were given up: an SQLite file.

An event is stored for each of its endpoints in one transaction before it is acknowledged to the
broker, and leaves when the endpoint has it. So neither a broker nor a kill of the daemon loses one,
and the attempts and the order of each repository outlive a restart.
"""

from __future__ import annotations

import contextlib
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
"""Events that wait for one endpoint; further ones are dead at once."""

MOST_DEAD: Final = 10_000
"""Dead events of one endpoint; beyond that the oldest are dropped."""

BUSY_SECONDS: Final = 10.0
"""For a command and the daemon to wait for each other."""

_SCHEMA: Final = """
create table if not exists received_1 (repository text primary key, number integer) without rowid;
create table if not exists deliveries_1 (
    endpoint text, repository text, number integer, path text, public integer, body blob,
    received real, attempts integer, due real, dead integer, reason text);
create unique index if not exists places_1 on deliveries_1 (endpoint, repository, number);
create index if not exists lines_1 on deliveries_1 (endpoint, dead, repository, number, due);
"""

_SELECT: Final = (
    "select endpoint, path, repository, number, public, body, received, attempts, reason "
    "from deliveries_1 where "
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event for an endpoint. `received` is in seconds since 1970."""

    endpoint: str
    event: Event
    received: float
    attempts: int = 0
    """Those that have begun."""
    reason: str = ""
    """Why the last attempt failed."""


class Line(NamedTuple):
    """The first delivery of a repository that waits for an endpoint, and when it is tried."""

    repository: str
    number: int
    due: float


@dataclass(frozen=True, slots=True)
class Count:
    """Deliveries of an endpoint: those that wait, the oldest arrival among them, dead ones."""

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

    def receive(self, event: Event, endpoints: Collection[str], now: float) -> bool:
        """Store an event for its endpoints; return False for one that had arrived already."""
        with self._transaction():
            row = self._file.execute(
                "select number from received_1 where repository = ?", (event.repository,)
            ).fetchone()
            if row is not None and event.number <= row[0]:
                return False
            self._file.execute(
                "insert or replace into received_1 values (?, ?)", (event.repository, event.number)
            )
            for endpoint in endpoints:
                self._insert(Delivery(endpoint, event, now))
        return True

    def _insert(self, delivery: Delivery) -> None:
        is_full = self._number(delivery.endpoint, dead=False) >= MOST_WAITING
        reason = f"more than {MOST_WAITING} events wait for this endpoint" if is_full else ""
        event = delivery.event
        self._file.execute(
            "insert or replace into deliveries_1 values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(delivery.endpoint, event.repository, event.number, event.path),
                *(event.is_public, event.body, delivery.received, 0, delivery.received),
                *(is_full, reason),
            ),
        )
        if is_full:
            self._forget(delivery.endpoint)

    def _number(self, endpoint: str, *, dead: bool) -> int:
        query = "select count(*) from deliveries_1 where endpoint = ? and dead = ?"
        number: int = self._file.execute(query, (endpoint, dead)).fetchone()[0]
        return number

    # -- attempts --------------------------------------------------------------------------------

    def lines(self, endpoint: str) -> list[Line]:
        """Return the first delivery of each repository, by the time of its next attempt."""
        # Of min() the other columns are those of its row; the index has all of them.
        rows = self._file.execute(
            "select repository, min(number), due from deliveries_1 "
            "where endpoint = ? and dead = 0 group by repository order by due",
            (endpoint,),
        )
        return [Line(*row) for row in rows]

    def begin(self, endpoint: str, line: Line) -> Delivery | None:
        """Count an attempt and return the delivery; None if it is gone.

        The count is stored before the request: while the disk is full, no endpoint gets an event
        again and again.
        """
        self._file.execute(
            "update deliveries_1 set attempts = attempts + 1 "
            "where endpoint = ? and dead = 0 and repository = ? and number = ?",
            (endpoint, line.repository, line.number),
        )
        row = self._file.execute(
            _SELECT + "endpoint = ? and dead = 0 and repository = ? and number = ?",
            (endpoint, line.repository, line.number),
        ).fetchone()
        return None if row is None else _delivery(row)

    def delivered(self, delivery: Delivery) -> None:
        """Remove a delivery that the endpoint has."""
        self._file.execute(
            "delete from deliveries_1 where endpoint = ? and dead = 0 and repository = ? "
            "and number = ?",
            (delivery.endpoint, delivery.event.repository, delivery.event.number),
        )

    def failed(self, delivery: Delivery, due: float | None, reason: str) -> None:
        """Note a failed attempt, and the time of the next one; None is none."""
        with self._transaction():
            self._file.execute(
                "update deliveries_1 set due = ?, dead = ?, reason = ? "
                "where endpoint = ? and dead = 0 and repository = ? and number = ?",
                (
                    *(due or 0.0, due is None, reason),
                    *(delivery.endpoint, delivery.event.repository, delivery.event.number),
                ),
            )
            if due is None:
                self._forget(delivery.endpoint)

    def _forget(self, endpoint: str) -> None:
        """Drop the oldest dead events beyond the bound."""
        surplus = self._number(endpoint, dead=True) - MOST_DEAD
        if surplus > 0:
            oldest = self._file.execute(
                "select repository, number from deliveries_1 where endpoint = ? and dead = 1 "
                "order by received limit ?",
                (endpoint, surplus),
            ).fetchall()
            self._file.executemany(
                "delete from deliveries_1 where endpoint = ? and dead = 1 and repository = ? "
                "and number = ?",
                [(endpoint, *row) for row in oldest],
            )

    # -- the dead-letter list --------------------------------------------------------------------

    def dead(self, endpoint: str = "") -> list[Delivery]:
        """Return the dead deliveries, of one endpoint or of all, in the order of their arrival."""
        rows = self._file.execute(
            _SELECT + "dead = 1 and ? in ('', endpoint) order by received, number",
            (endpoint,),
        )
        return [_delivery(row) for row in rows]

    def retry(self, deliveries: Iterable[Delivery], now: float) -> None:
        """Have dead deliveries tried again, for as long as new ones."""
        with self._transaction():
            self._file.executemany(
                "update deliveries_1 set dead = 0, attempts = 0, received = ?, due = ? "
                "where endpoint = ? and dead = 1 and repository = ? and number = ?",
                [
                    (now, now, one.endpoint, one.event.repository, one.event.number)
                    for one in deliveries
                ],
            )

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """Remove dead deliveries."""
        with self._transaction():
            self._file.executemany(
                "delete from deliveries_1 where endpoint = ? and dead = 1 and repository = ? "
                "and number = ?",
                [(one.endpoint, one.event.repository, one.event.number) for one in deliveries],
            )

    def keep(self, endpoints: Collection[str]) -> int:
        """Remove what waits for other endpoints than these; return how many deliveries did."""
        marks = ", ".join("?" * len(endpoints))
        found = self._file.execute(
            f"delete from deliveries_1 where dead = 0 and endpoint not in ({marks})",  # noqa: S608  (marks)
            tuple(endpoints),
        )
        return found.rowcount

    def counts(self) -> dict[str, Count]:
        """Count the deliveries of each endpoint that has some."""
        rows = self._file.execute(
            "select endpoint, sum(dead = 0), min(case when dead = 0 then received end), "
            "sum(dead = 1) from deliveries_1 group by endpoint"
        )
        return {row[0]: Count(row[1], row[2] or 0.0, row[3], self._reason(row[0])) for row in rows}

    def _reason(self, endpoint: str) -> str:
        row = self._file.execute(
            "select reason from deliveries_1 where endpoint = ? and dead = 0 "
            "order by attempts desc limit 1",
            (endpoint,),
        ).fetchone()
        return "" if row is None else str(row[0])


def _delivery(row: tuple[Any, ...]) -> Delivery:
    endpoint, path, repository, number, public, body, received, attempts, reason = row
    event = Event(path, repository, number, bool(public), body)
    return Delivery(endpoint, event, received, attempts, reason)

"""The spool of the release before: an SQLite file whose events are moved to the brokers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import HostError
from hgfleet.replication.protocol import events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.replication.protocol.events import Event

FILE: Final = "spool.sqlite"


class Former(NamedTuple):
    """An event for a receiver. `received` is in seconds since 1970."""

    receiver: str
    event: Event
    received: float
    attempts: int
    is_dead: bool
    reason: str


def read(folder: Path) -> Iterator[Former]:
    """Yield the events of a spool, in the order of the pushes of each repository."""
    if not (folder / FILE).exists():
        return
    try:
        with closing(sqlite3.connect(folder / FILE)) as file:
            rows = file.execute(
                "select receiver, body, received, attempts, dead, reason from deliveries_1 "
                "order by dead, receiver, repository, number"
            )
            for receiver, body, received, attempts, dead, reason in rows:
                try:
                    event = events.decode(body)
                except ValueError:
                    continue
                yield Former(receiver, event, received, attempts, bool(dead), reason or "")
    except sqlite3.Error as error:
        raise HostError(
            f"{folder / FILE}: {error}; the file is of the release before; moved away, the events "
            "in it are lost, and the push logs have their pushes"
        ) from error


def remove(folder: Path) -> None:
    """Remove the file, once its events are at the brokers."""
    for suffix in ("-wal", "-shm", ""):
        (folder / (FILE + suffix)).unlink(missing_ok=True)

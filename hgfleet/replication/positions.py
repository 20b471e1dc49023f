"""Positions of the relay: an SQLite file. Its loss costs questions to the streams, no push."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from hgfleet.pushlog.committed import Stamp
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.outbox import Position

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE: Final = "positions.sqlite"

_SCHEMA: Final = """
create table if not exists positions_2 (
    repository text primary key, id integer, hash text, end integer, epoch integer,
    inode integer, size integer, changed integer, sequence integer);
create table if not exists announced_1 (
    repository text primary key, id integer, hash text, end integer, epoch integer);
create table if not exists facts (name text primary key, value text);
"""

_TAKE_OVER: Final = """
begin;
insert or replace into positions_2
    select repository, id, hash, end, epoch, inode, size, changed, sequence from positions_1
    where repository <> '' order by epoch, id;
drop table positions_1;
commit;
"""
"""From the table of the release before, which was by path."""


class Positions:
    """The positions of all repositories by identity, in memory and in a file. For one thread."""

    def __init__(self, folder: Path) -> None:
        file = folder / FILE
        try:
            self._open(file)
        except sqlite3.DatabaseError:
            # A corrupt file is as good as none.
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (folder / name).unlink(missing_ok=True)
            self._open(file)

    def _open(self, file: Path) -> None:
        self._file = sqlite3.connect(file, isolation_level=None)
        # A power cut may lose the last positions: the stream then says how far it is.
        self._file.execute("pragma journal_mode=wal")
        self._file.execute("pragma synchronous=off")
        self._file.executescript(_SCHEMA)
        if self._file.execute("select 1 from sqlite_schema where name = 'positions_1'").fetchone():
            self._file.executescript(_TAKE_OVER)
        self._rows: dict[str, Position] = {
            row[0]: Position(
                row[0], Tip(row[1], row[2], row[0], row[3], row[4]), Stamp(*row[5:8]), row[8]
            )
            for row in self._file.execute("select * from positions_2")
        }
        self._announced: dict[str, Tip] = {
            row[0]: Tip(row[1], row[2], row[0], row[3], row[4])
            for row in self._file.execute("select * from announced_1")
        }
        self._facts: dict[str, str] = dict(self._file.execute("select name, value from facts"))

    def __iter__(self) -> Iterator[Position]:
        return iter(self._rows.values())

    def get(self, repository: str) -> Position | None:
        """Return the position of a repository."""
        return self._rows.get(repository)

    def save(self, position: Position) -> None:
        """Replace the position of a repository."""
        tip, stamp = position.tip, position.stamp
        self._file.execute(
            "insert or replace into positions_2 values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(position.repository, tip.id, tip.hash, tip.end, tip.epoch),
                *(*stamp, position.sequence),
            ),
        )
        self._rows[position.repository] = position

    def forget(self, repository: str) -> None:
        """Remove what is known of a repository, for one that was deleted."""
        if repository in self._rows or repository in self._announced:
            self._file.execute("delete from positions_2 where repository = ?", (repository,))
            self._file.execute("delete from announced_1 where repository = ?", (repository,))
            self._rows.pop(repository, None)
            self._announced.pop(repository, None)

    def announced(self, repository: str) -> Tip | None:
        """Return the last push of a repository whose event is out; None if none is known."""
        return self._announced.get(repository)

    def announce(self, repository: str, tip: Tip) -> None:
        """Replace the last push of a repository whose event is out."""
        self._file.execute(
            "insert or replace into announced_1 values (?, ?, ?, ?, ?)",
            (repository, tip.id, tip.hash, tip.end, tip.epoch),
        )
        self._announced[repository] = tip

    def fact(self, name: str) -> str:
        """Return a text that was noted, empty if none was."""
        return self._facts.get(name, "")

    def note(self, name: str, value: str) -> None:
        """Note a text under a name."""
        if self._facts.get(name) != value:
            self._file.execute("insert or replace into facts values (?, ?)", (name, value))
            self._facts[name] = value

    def close(self) -> None:
        """Close the file."""
        self._file.close()

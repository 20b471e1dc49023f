"""Positions of the relay: an SQLite file. If it is lost, the relay asks the streams instead."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from hgfleet.pushlog.committed import Stamp
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.primary.outbox import Position

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
"""Takes over the table of the previous release, which was by path."""


_SAVE: Final = "insert or replace into positions_2 values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ANNOUNCE: Final = "insert or replace into announced_1 values (?, ?, ?, ?, ?)"
_NOTE: Final = "insert or replace into facts values (?, ?)"


class Positions:
    """The positions of all repositories by identity, in memory and in a file. For one thread.

    If the disk is full, or fails, pushes still go to the stream: rows that the file does not take
    stay in memory, and `flush` writes them when there is room.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[str, Position] = {}
        self._announced: dict[str, Tip] = {}
        self._facts: dict[str, str] = {}
        self._file: sqlite3.Connection | None = None
        self._problem = ""
        """Why the file did not take the last write."""
        try:
            self._open()
        except sqlite3.OperationalError as error:
            # The disk fails, but the file may be whole. Until it can be read, ask the streams.
            self._fail(error)
        except sqlite3.DatabaseError:
            # A corrupt file is of no use.
            discard(folder)
            try:
                self._open()
            except sqlite3.OperationalError as error:
                self._fail(error)

    def _open(self) -> None:
        file = sqlite3.connect(self._folder / FILE, isolation_level=None)
        try:
            # If a power cut loses the last positions, the stream has them.
            file.execute("pragma journal_mode=wal")
            file.execute("pragma synchronous=off")
            file.executescript(_SCHEMA)
            if file.execute("select 1 from sqlite_schema where name = 'positions_1'").fetchone():
                file.executescript(_TAKE_OVER)
            rows = {
                row[0]: Position(
                    row[0], Tip(row[1], row[2], row[0], row[3], row[4]), Stamp(*row[5:8]), row[8]
                )
                for row in file.execute("select * from positions_2")
            }
            announced = {
                row[0]: Tip(row[1], row[2], row[0], row[3], row[4])
                for row in file.execute("select * from announced_1")
            }
            facts = dict(file.execute("select name, value from facts"))
        except sqlite3.Error:
            file.close()
            raise
        self._file = file
        # Rows in memory are newer than rows of the file.
        self._rows = rows | self._rows
        self._announced = announced | self._announced
        self._facts = facts | self._facts

    def _fail(self, error: sqlite3.Error) -> None:
        self._problem = (
            f"{self._folder / FILE} takes no positions ({error}); pushes continue, and the relay "
            "writes the positions when the disk has room"
        )

    def _write(self, text: str, values: tuple[object, ...]) -> None:
        """Change the file; after a failure `flush` writes everything."""
        if self._file is None or self._problem:
            return
        try:
            self._file.execute(text, values)
        except sqlite3.Error as error:
            self._fail(error)

    def flush(self) -> str:
        """Write the rows that the file did not take; return why it still does not take them."""
        if not self._problem:
            return ""
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            self._file.execute("begin")
            try:
                for table in ("positions_2", "announced_1", "facts"):
                    self._file.execute(f"delete from {table}")  # noqa: S608  (names from here)
                for position in self._rows.values():
                    self._file.execute(_SAVE, _row(position))
                for repository, tip in self._announced.items():
                    self._file.execute(_ANNOUNCE, _announcement(repository, tip))
                self._file.executemany(_NOTE, self._facts.items())
                self._file.execute("commit")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    self._file.execute("rollback")
                raise
        except sqlite3.Error as error:
            self._fail(error)
        else:
            self._problem = ""
        return self._problem

    def __iter__(self) -> Iterator[Position]:
        return iter(self._rows.values())

    def get(self, repository: str) -> Position | None:
        """Return the position of a repository."""
        return self._rows.get(repository)

    def save(self, position: Position) -> None:
        """Replace the position of a repository."""
        self._write(_SAVE, _row(position))
        self._rows[position.repository] = position

    def forget(self, repository: str) -> None:
        """Remove the position and the announcement of a deleted repository."""
        if repository in self._rows or repository in self._announced:
            self._write("delete from positions_2 where repository = ?", (repository,))
            self._write("delete from announced_1 where repository = ?", (repository,))
            self._rows.pop(repository, None)
            self._announced.pop(repository, None)

    def announced(self, repository: str) -> Tip | None:
        """Return the last push of a repository whose event was sent; None if unknown."""
        return self._announced.get(repository)

    def announce(self, repository: str, tip: Tip) -> None:
        """Replace the last push of a repository whose event was sent."""
        self._write(_ANNOUNCE, _announcement(repository, tip))
        self._announced[repository] = tip

    def fact(self, name: str) -> str:
        """Return the text under a name; empty if there is none."""
        return self._facts.get(name, "")

    def note(self, name: str, value: str) -> None:
        """Store a text under a name."""
        if self._facts.get(name) != value:
            self._write(_NOTE, (name, value))
            self._facts[name] = value

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def discard(folder: Path) -> None:
    """Remove the positions of a host that was the primary before another host (I/O)."""
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        (folder / name).unlink(missing_ok=True)


def _row(position: Position) -> tuple[object, ...]:
    tip = position.tip
    return (
        *(position.repository, tip.id, tip.hash, tip.end, tip.epoch),
        *(*position.stamp, position.sequence),
    )


def _announcement(repository: str, tip: Tip) -> tuple[object, ...]:
    return repository, tip.id, tip.hash, tip.end, tip.epoch

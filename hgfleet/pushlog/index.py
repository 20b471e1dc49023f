"""The index of a push log: `.hg/cache/pushlog.sqlite`, made from the log and deletable at any time.

A session updates it after it has released the lock of the store, when the index is due
(`hgfleet.pushlog.index_step`). Readers that cannot write, such as web workers, read the index and
the part of the log that it does not cover (`hgfleet.pushlog.view`). The identity of the chain and a
digest of the last covered bytes tie the index to its log. An index that does not match is built
again in a second file, which then replaces it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog import index_step, tables
from hgfleet.pushlog.committed import CommittedLog
from hgfleet.pushlog.index_step import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

MODE: Final = 0o640
"""Repositories are read by the group."""

_SESSION_SECONDS: Final = 2.0
"""The time that a writer waits for readers of the index."""


class Updated(NamedTuple):
    """The result of an update."""

    pushes: int
    is_rebuilt: bool = False


def update(log: Path, index: Path) -> Updated:
    """Update the index to the committed part of its log.

    Raises PushlogError if the log is damaged, TemporaryError if another process updates it, OSError
    and sqlite3.Error.
    """
    index.parent.mkdir(exist_ok=True)
    with _alone(index.parent), CommittedLog(log) as committed:
        if index.exists():
            with contextlib.suppress(_UnusableError):
                return _append(committed, index)
        return _rebuild(committed, index)


class _UnusableError(Exception):
    """The index is damaged, has another version, or belongs to another log."""


def _append(log: CommittedLog, index: Path) -> Updated:
    try:
        with contextlib.closing(_connect(index)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            covered = tables.covered(connection)
            if covered is None or not covered.fits(log):
                raise _UnusableError
            last = tables.insert(connection, covered.following(log))
            if last is None:
                return Updated(0)
            tables.mark(connection, log, last)
            _record_covered(connection, last.end)
            connection.execute("COMMIT")
            return Updated(last.record.id - covered.id)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TemporaryError(f"{index} is being read; try again in a minute") from error
        raise _UnusableError from error
    except sqlite3.DatabaseError as error:
        raise _UnusableError from error


def _rebuild(log: CommittedLog, index: Path) -> Updated:
    """Build the index in a second file, which then replaces the old index."""
    descriptor, name = tempfile.mkstemp(prefix=f"{NAME}.", dir=index.parent)
    os.close(descriptor)
    new = Path(name)
    try:
        with contextlib.closing(_connect(new)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            tables.create(connection)
            connection.execute("BEGIN")
            last = tables.insert(connection, tables.Covered().following(log))
            if last is not None:
                tables.mark(connection, log, last)
                _record_covered(connection, last.end)
            connection.execute("COMMIT")
        new.chmod(MODE)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        # SQLite would apply the leftover journal of an interrupted writer of the old file to the
        # new.
        index.with_name(f"{NAME}-journal").unlink(missing_ok=True)
        new.rename(index)
    finally:
        new.unlink(missing_ok=True)
    # Pages that are kept until the repository changes may have been made without the index.
    os.utime(index.parent.parent)
    return Updated(0 if last is None else last.record.id, is_rebuilt=True)


def refresh(log: str, index: str) -> None:
    """Update an index if it is due; for sessions, which a failure of the index never fails."""
    if index_step.is_due(log, index):
        with contextlib.suppress(Exception):
            update(Path(log), Path(index))


def open_for_reading(index: Path) -> sqlite3.Connection | None:
    """Open an index without writing anything; None if there is none of this version."""
    if not index.exists():
        return None
    address = f"file:{quote(str(index))}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=0.5, isolation_level=None)
        connection.execute("BEGIN")
        if tables.covered(connection) is not None:
            return connection
        connection.close()
    except sqlite3.Error:
        return None
    return None


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_SESSION_SECONDS, isolation_level=None)


def _record_covered(connection: sqlite3.Connection, end: int) -> None:
    """Write the number of covered bytes where a session reads it without SQLite."""
    connection.execute(f"PRAGMA user_version = {end // index_step.UNIT}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder of caches against other writers of the index; raises TemporaryError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TemporaryError(f"another process updates {folder / NAME}") from None
        yield
    finally:
        os.close(descriptor)

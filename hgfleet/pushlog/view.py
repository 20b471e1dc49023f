"""All pushes of a repository for a reader: its index, and the committed records after it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog import index, index_step, log_file, tables
from hgfleet.pushlog.committed import CommittedLog
from hgfleet.pushlog.tables import Covered, Push, Selection

if TYPE_CHECKING:
    from pathlib import Path

TAIL: Final = 512 * 1024
"""Bytes of records that a reader parses itself (some 1,000 pushes); more need an index."""


class NotIndexedError(TemporaryError):
    """A push log is too long to be read without its index."""


class View:
    """The pushes of a repository at a point in time; close it.

    The index comes first: its ids are lower than the ids of the records after it.
    """

    def __init__(self, store: Path, cache: Path) -> None:
        """Raises NotIndexedError, PushlogError, OSError and sqlite3.Error."""
        self._parts: list[sqlite3.Connection] = []
        try:
            self._open(store / log_file.NAME, cache / index_step.NAME)
        except BaseException:
            self.close()
            raise

    def _open(self, log: Path, file: Path) -> None:
        # Open the index first, so that the log contains everything that the index has.
        connection = index.open_for_reading(file)
        covered = Covered()
        if connection is not None:
            self._parts.append(connection)
            covered = tables.covered(connection) or covered
        with CommittedLog(log) as committed:
            if connection is not None and not covered.fits(committed):
                self.close()
                covered = Covered()
            uncovered = committed.end - covered.end
            if uncovered > TAIL:
                raise NotIndexedError(
                    f"{log} has {uncovered} bytes that {file} does not cover, expected at most "
                    f"{TAIL}; update it with: hgfleet pushlog index PATH"
                )
            self.identity, self.last_id = covered.identity, covered.id
            if uncovered:
                tail = sqlite3.connect(":memory:", isolation_level=None)
                self._parts.append(tail)
                tables.create(tail)
                tail.execute("BEGIN")
                last = tables.insert(tail, covered.following(committed))
                if last is not None:
                    self.identity, self.last_id = last.record.repository, last.record.id

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the databases; more than once is fine."""
        for connection in self._parts:
            connection.close()
        self._parts = []

    def pushes(self, wanted: Selection, limit: int) -> list[Push]:
        """Return the first pushes that match, oldest first."""
        pushes: list[Push] = []
        for part in self._parts:
            if limit > len(pushes):
                pushes += tables.select(part, wanted, limit - len(pushes))
        return pushes

    def newest(self, wanted: Selection, limit: int, skip: int = 0) -> list[Push]:
        """Return the last pushes that match but for the newest `skip`, newest first."""
        pushes: list[Push] = []
        for part in reversed(self._parts):
            if limit > len(pushes):
                pushes += tables.select(
                    part, wanted, limit - len(pushes), newest_first=True, skip=skip
                )
                skip = 0 if pushes else max(0, skip - tables.count(part, wanted))
        return pushes

    def count(self, wanted: Selection) -> int:
        """Return the number of pushes that fit."""
        return sum(tables.count(part, wanted) for part in self._parts)

    def nodes(self, push: int) -> list[bytes]:
        """Return the changesets of a push, parents first."""
        for part in self._parts:
            if nodes := tables.nodes(part, push):
                return nodes
        return []

    def push_of(self, node: bytes) -> int | None:
        """Return the newest push of a changeset."""
        return self.named(node.hex()).get(node)

    def named(self, prefix: str) -> dict[bytes, int]:
        """Return up to three changesets or more with a hexadecimal prefix, with their pushes."""
        changesets: dict[bytes, int] = {}
        for part in self._parts:
            changesets.update(tables.named(part, prefix))
        return changesets

    def adoption(self) -> Push | None:
        """Return the record for all changesets from before the log, if it exists."""
        first = self.pushes(Selection(to_id=1), 1)
        return first[0] if first and first[0].kind == "adoption" else None

    def last(self) -> Push | None:
        """Return the newest push."""
        return next(iter(self.newest(Selection(), 1)), None)

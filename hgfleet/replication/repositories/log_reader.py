"""Reads of push logs by the relay: committed records in pieces, and stamps for scans."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain, log_file
from hgfleet.pushlog.committed import CommittedLog, Stamp
from hgfleet.pushlog.record import hash_of

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.pushlog.log_file import Entry, Tip

PIECE_BYTES: Final = 8 * 1024 * 1024
PIECE_RECORDS: Final = 256
"""A read ends at the first record beyond either limit; the rest is read afterwards."""


def store_of(repositories: Path, path: str) -> Path:
    """Return the store of a repository."""
    return repositories / path / ".hg/store"


def stamp(store: Path | str) -> Stamp | None:
    """Return the stamp of a log; None if there is no log."""
    try:
        status = os.stat(f"{store}/{log_file.NAME}")  # noqa: PTH116  (10,000 of them in a scan)
    except OSError:
        return None
    return Stamp.of(status)


def scanned(repositories: Path, path: str) -> Stamp | None:
    """Return the stamp of a repository's log, without the cost of a Path."""
    return stamp(f"{repositories}/{path}/.hg/store")


def read(store: Path, offset: int = 0) -> list[Entry]:
    """Return committed records from an offset on, at most a piece.

    Raises PushlogError, TemporaryError and OSError.
    """
    records: list[Entry] = []
    with CommittedLog(store / log_file.NAME) as log:
        for entry in log.entries(offset):
            records.append(entry)
            if entry.end - offset > PIECE_BYTES or len(records) >= PIECE_RECORDS:
                break
    return records


def following(store: Path, path: str, tip: Tip, repository: str) -> list[Entry]:
    """Return the records after a tip, at most a piece, if they continue its chain.

    Raises PushlogError if they do not, or belong to another repository, and as `read` does.
    """
    entries = read(store, tip.end)
    if not entries:
        return []
    first = entries[0].record
    wrong = chain.problem(tip, first)
    if wrong is None and first.repository != repository:
        wrong = f"record {first.id} belongs to repository {first.repository}, expected {repository}"
    if wrong is not None:
        raise PushlogError(
            f"the push log of {path} does not go on after push {tip.id}: {wrong}; `hgfleet pushlog "
            f"verify {path}` (runbook pushlog)"
        )
    return entries


def last(store: Path) -> list[Entry]:
    """Return the last committed record; none of an empty log. Raises as `read` does."""
    with CommittedLog(store / log_file.NAME) as log:
        # The last line begins where the line before it ends.
        return list(log.entries(log.lines_end(log.end - 1)))


def holds(store: Path, tip: Tip) -> bool:
    """Whether the committed log has the record of a tip at its position. Raises as `read`."""
    if not tip.id:
        return True
    with CommittedLog(store / log_file.NAME) as log:
        if log.end < tip.end:
            return False
        line = log.read(log.lines_end(tip.end - 1), tip.end)
    return line.endswith(b"\n") and hash_of(line[:-1]) == tip.hash


def hashes(store: Path, tip: Tip, most: int) -> dict[int, str]:
    """Return the hashes of the last records up to a tip in the log, by their numbers."""
    known: dict[int, str] = {}
    with CommittedLog(store / log_file.NAME) as log:
        number, end = tip.id, min(tip.end, log.end)
        while end > 0 and number > 0 and len(known) < most:
            start = log.lines_end(end - 1)
            known[number] = hash_of(log.read(start, end - 1))
            number, end = number - 1, start
    return known


def find(store: Path, number: int) -> Entry | None:
    """Return the committed record of a number; None if there is none. Raises as `read`."""
    with CommittedLog(store / log_file.NAME) as log:
        return next((entry for entry in log.entries() if entry.record.id == number), None)

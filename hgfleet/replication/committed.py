"""Records of a push log that are committed, read without the lock of their repository.

A transaction appends its record before it is committed, and an abort truncates the file. Core
removes the journal of the transaction (`.hg/store/journal`) when it commits and after it has undone
the rest. A record is committed if it begins before the offset that the journal has for the push
log, or if there is no such journal, and if it is still there afterwards.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.pushlog import log_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hgfleet.pushlog.log_file import Entry

JOURNAL: Final = "journal"
"""In the store (mercurial.transaction, 7.2): lines of a file's name, a NUL, and its old size."""

PIECE_BYTES: Final = 8 * 1024 * 1024
PIECE_RECORDS: Final = 256
"""A read ends at the first record beyond one of the two; the rest is read afterwards."""


class Stamp(NamedTuple):
    """The part of the log's stat that changes with its content."""

    inode: int
    size: int
    changed: int
    """Nanoseconds since 1970."""


def store_of(repositories: Path, path: str) -> Path:
    """Return the store of a repository."""
    return repositories / path / ".hg/store"


def store_of_text(repositories: Path, path: str) -> str:
    """Return the same as text: a scan makes 10,000 of them."""
    return f"{repositories}/{path}/.hg/store"


def stamp(store: Path | str) -> Stamp | None:
    """Return the stamp of a log; None without one."""
    try:
        found = os.stat(f"{store}/{log_file.NAME}")  # noqa: PTH116  (10,000 of them in a scan)
    except OSError:
        return None
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


def boundary(journal: bytes | None) -> int | None:
    """Return the size of the log before an open transaction; None if none has touched it."""
    for line in (journal or b"").split(b"\n"):
        name, _, offset = line.partition(b"\0")
        if name == log_file.NAME.encode() and offset.isdigit():
            return int(offset)
    return None


def read(store: Path, offset: int = 0) -> list[Entry]:
    """Return committed records from an offset on, at most a piece. Raises PushlogError, OSError."""
    log = store / log_file.NAME
    found: list[Entry] = []
    for entry in log_file.entries(log, offset):
        found.append(entry)
        if entry.end - offset > PIECE_BYTES or len(found) >= PIECE_RECORDS:
            break
    return settled(store, found)


def last(store: Path) -> list[Entry]:
    """Return the last record, if it is committed; none of an empty log."""
    tip = log_file.tip(store / log_file.NAME)
    if not tip.id:
        return []
    size = _line_size(store, tip.end)
    entries = log_file.entries(store / log_file.NAME, tip.end - size)
    return settled(store, [entry for entry in entries if entry.record.id == tip.id][:1])


def _line_size(store: Path, end: int) -> int:
    """Return the size of the line that ends at an offset, its line feed included."""
    with (store / log_file.NAME).open("rb") as log:
        size = 1
        while size < end:
            step = min(65536, end - size)
            log.seek(end - size - step)
            feed = log.read(step).rfind(b"\n")
            if feed >= 0:
                return size + step - feed - 1
            size += step
    return end


def settled(store: Path, found: list[Entry]) -> list[Entry]:
    """Return those of the records, just read, that are committed."""
    try:
        journal: bytes | None = (store / JOURNAL).read_bytes()
    except FileNotFoundError:
        journal = None
    before = boundary(journal)
    kept = [entry for entry in found if before is None or entry.end <= before]
    # An abort in between has truncated the log before it removed the journal.
    while kept and not _is_there(store, kept[-1:]):
        kept.pop()
    return kept


def _is_there(store: Path, entries: Iterable[Entry]) -> bool:
    try:
        with (store / log_file.NAME).open("rb") as log:
            for entry in entries:
                log.seek(entry.offset)
                if log.read(len(entry.line) + 1) != entry.line + b"\n":
                    return False
    except FileNotFoundError:
        return False
    return True

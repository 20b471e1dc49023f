"""The file of a push log: `.hg/store/pushlog`, lines of `record.py`, appended in transactions.

Readers take no lock. A transaction appends whole lines and a failed transaction truncates the file,
so the last line may be incomplete or disappear: readers stop at the last line feed, and only a
holder of the store's lock may rely on the last record.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog.record import FIRST, Record, hash_of, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME: Final = "pushlog"
"""In the store of a repository."""

FROM_START: Final = "pushlog-from-start"
"""In `.hg` of a repository that was made empty under a push log: no push adopts its changesets. A
repository that is older than its log, or was copied here, does not have this file."""

MAX_LINE: Final = 256 * 1024 * 1024
"""Bytes; a record of a million changesets has some 90 MB."""

_PIECE: Final = 64 * 1024


class Entry(NamedTuple):
    """A record with its line (without line feed) and the place of that line in the file (bytes)."""

    offset: int
    line: bytes
    record: Record

    @property
    def end(self) -> int:
        """The offset of the next line."""
        return self.offset + len(self.line) + 1

    @property
    def hash(self) -> str:
        """The hash by which the next record names this record."""
        return hash_of(self.line)


class Tip(NamedTuple):
    """The end of a chain, which the next record continues."""

    id: int = 0
    hash: str = FIRST
    repository: str = ""
    end: int = 0
    """Size of the file up to the last line feed, in bytes."""
    epoch: int = 1


def tip(file: Path | str) -> Tip:
    """Return the end of the chain; for a missing or empty file it is `Tip()`.

    Raises PushlogError if the last line is not a record, OSError if the file cannot be read.
    """
    end, line = _end(file)
    if line is None:
        return Tip()
    record = parse(line)
    return Tip(record.id, hash_of(line), record.repository, end, record.epoch)


def last(file: Path | str) -> Record | None:
    """Return the last record, or None; raises as `tip`."""
    line = _end(file)[1]
    return None if line is None else parse(line)


def _end(file: Path | str) -> tuple[int, bytes | None]:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123  (sessions import this; pathlib is slow)
            return _last_line(opened.fileno())
    except FileNotFoundError:
        return 0, None


def _last_line(descriptor: int) -> tuple[int, bytes | None]:
    """Return the end of the last complete line, and that line; 0 and None if there is none.

    The pieces grow, so that a line of any length is copied only a few times.
    """
    start, tail = os.fstat(descriptor).st_size, b""
    while start > 0:
        step = min(max(_PIECE, len(tail)), start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
        complete = tail.rfind(b"\n")
        if complete < 0:
            continue
        before = tail.rfind(b"\n", 0, complete)
        if before >= 0 or start == 0:
            return start + complete + 1, tail[before + 1 : complete]
        if len(tail) > MAX_LINE:
            raise PushlogError(f"the last line is longer than {MAX_LINE} bytes")
    return 0, None


def entries(file: Path | str, offset: int = 0) -> Iterator[Entry]:
    """Read the complete lines from an offset on; a missing file has none. Raises PushlogError."""
    for start, line in lines(file, offset):
        try:
            record = parse(line)
        except PushlogError as error:
            raise PushlogError(f"{file}, byte {start}: {error}") from error
        yield Entry(start, line, record)


def lines(file: Path | str, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Read the complete lines from an offset on, with their offsets, unparsed."""
    try:
        opened = open(file, "rb")  # noqa: PTH123, SIM115
    except FileNotFoundError:
        return
    with opened:
        opened.seek(offset)
        for line in opened:
            if not line.endswith(b"\n"):
                return
            yield offset, line[:-1]
            offset += len(line)

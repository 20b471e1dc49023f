"""The committed part of a push log, for readers without the lock of the store.

A transaction appends its record before it is committed. Until then, the file `journal` next to the
log names the size that an abort truncates the log to. A reader that reads the log up to that size
never shows a push that is undone later.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import PushlogError, TemporaryError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Entry
from hgfleet.pushlog.record import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOURNAL: Final = "journal"
"""Name of the file of a running or broken transaction, in the store (core 7.2)."""

_ATTEMPTS: Final = 100
"""Reads of the journal of a log that changes at the same time; a push needs two reads."""


class Stamp(NamedTuple):
    """The properties of a file that change whenever its content does."""

    inode: int
    size: int
    modified_ns: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        """Return the stamp of a file whose properties were read."""
        return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def size_before(journal: bytes) -> int | None:
    """Return the size of the push log that a journal names (bytes), None if it names none."""
    for line in journal.splitlines():
        name, separator, size = line.partition(b"\0")
        if separator and name == log_file.NAME.encode() and size.isdigit():
            return int(size)
    return None


class CommittedLog:
    """An open push log up to its committed end; a missing log is empty."""

    def __init__(self, log: Path) -> None:
        """Raises OSError, and TemporaryError if the log keeps changing."""
        self.path = log
        self._descriptor = -1
        self.end = 0
        """Bytes of committed lines."""
        try:
            self._descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self.end = self.lines_end(self._committed())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CommittedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; more than once is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, start: int, end: int) -> bytes:
        """Read bytes of the committed part."""
        pieces = []
        while self._descriptor >= 0 and start < end:
            piece = os.pread(self._descriptor, end - start, start)
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def entries(self, offset: int = 0) -> Iterator[Entry]:
        """Read the committed records from an offset on; raises PushlogError."""
        for start, line in log_file.lines(f"/proc/self/fd/{self._descriptor}", offset):
            if start + len(line) >= self.end:
                return
            try:
                record = parse(line)
            except PushlogError as error:
                raise PushlogError(f"{self.path}, byte {start}: {error}") from error
            yield Entry(start, line, record)

    def lines_end(self, size: int) -> int:
        """Return the end of the last complete line within the first `size` bytes."""
        step = 64 * 1024
        end = size
        while end > 0:
            start = max(0, end - step)
            line_feed = self.read(start, end).rfind(b"\n")
            if line_feed >= 0:
                return start + line_feed + 1
            end = start
        return 0

    def _committed(self) -> int:
        """Return the size up to which no running transaction can undo the log.

        If the log is the same before and after the read of the journal, its last record belongs to
        the transaction of that journal, or to a committed transaction.
        """
        # A transaction writes the size of the log to its journal before it appends to the log, and
        # removes the journal when it commits. So a journal and a log belong together only if the
        # log did not change while the journal was read. If it did change, read the journal again.
        journal = self.path.with_name(JOURNAL)
        before = self._stamp()
        for _ in range(_ATTEMPTS):
            try:
                known = size_before(journal.read_bytes())
            except FileNotFoundError:
                known = None
            after = self._stamp()
            if after == before:
                return before.size if known is None else min(known, before.size)
            before = after
        raise TemporaryError(f"{self.path} changes all the time; try again in a minute")

    def _stamp(self) -> Stamp:
        return Stamp.of(os.fstat(self._descriptor))

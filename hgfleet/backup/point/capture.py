"""Capture of a recovery point, while pushes run and without a lock.

The files that define the state of a repository are few and small: the index of the changelog, the
push log, the obsolescence markers, phases, bookmarks. They are read twice, with the journal of a
running transaction, until both reads agree. Every file that the journal names is taken as it was
before the transaction: whether the transaction runs, was killed or is about to end, its state is
not committed.

All other files of the store are appended to. Their part of a state follows from the number of its
changesets (`revlog_index.py`), so restic may read them later, while pushes go on.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.backup.point import revlog_index, transaction_journal
from hgfleet.backup.point.point import Point
from hgfleet.core import identity as identities
from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import hash_of, parse

if TYPE_CHECKING:
    from pathlib import Path

CHANGELOG: Final = "store/00changelog.i"
PUSHLOG: Final = f"store/{log_file.NAME}"
APPENDED: Final = (PUSHLOG, "store/obsstore")
REPLACED: Final = ("store/phaseroots", "store/bookmarks", "bookmarks")

PATIENCE_SECONDS: Final = 20.0
"""Time until two reads must agree. A push changes these files for some milliseconds at its end."""

_PAUSE_SECONDS: Final = 0.005
_MOST_PAUSE_SECONDS: Final = 0.5
_TAIL: Final = log_file.MAX_LINE


class _ChangingError(Exception):
    """A transaction changed the files during the read."""


Stamp = tuple[int, int, int] | None


class _Look(NamedTuple):
    """The journal and the stamps of the files, as read at the same moment."""

    journal: transaction_journal.Journal | None
    stamps: tuple[Stamp, ...]


def capture(control: Path, path: str) -> Point:
    """Return a state of the repository, given its .hg, that is committed now.

    Raises TemporaryError if its files do not hold still, HostError if they cannot be read.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = _PAUSE_SECONDS
    while True:
        try:
            return _attempt(control, path)
        except _ChangingError as error:
            if time.monotonic() > deadline:
                raise TemporaryError(
                    f"{path}: {error}, for {PATIENCE_SECONDS:.0f} s; if a transaction was killed "
                    f"at its end, `hg -R {control.parent} recover` as the owner undoes it"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        except OSError as error:
            raise HostError(f"{path}: {error}") from error


def _attempt(control: Path, path: str) -> Point:
    now = time.time()
    before = _look(control)
    journal = before.journal or transaction_journal.Journal({}, {})
    if CHANGELOG in journal.copies:
        raise _ChangingError("the index of the changelog is being replaced")
    index = _read(control, CHANGELOG) or b""
    index = index[: journal.sizes.get(CHANGELOG, len(index))]
    kept = revlog_index.keep(index, len(index) // revlog_index.SIZE + 1)
    replaced: dict[str, str | None] = {}
    for name in REPLACED:
        place = journal.copies.get(name, name)
        content = None if place is None else _read(control, place)
        if place not in (None, name) and content is None:
            raise _ChangingError(f"the journal names {place}, which is missing")
        replaced[name] = None if content is None else content.decode("utf-8", "surrogateescape")
    sizes = {}
    for name in APPENDED:
        size = _size(control, name)
        sizes[name] = min(size, journal.sizes.get(name, size))
    line = _last_line(control, sizes[PUSHLOG])
    after = _look(control)
    if not _agree(before, after):
        raise _ChangingError("its state changed during the read")
    record = parse(line) if line else None
    return Point(
        path=path,
        time=now,
        changesets=kept.revisions,
        tip=revlog_index.last_node(index, kept),
        sizes=sizes,
        replaced=replaced,
        push_id=record.id if record else 0,
        push_hash=hash_of(line) if line else "",
        heads=record.heads.digest if record else "",
        identity=identities.of(control.parent),
    )


def _look(control: Path) -> _Look:
    appended = _read(control, f"store/{transaction_journal.NAME}")
    replaced = _read(control, f"store/{transaction_journal.REPLACED}")
    journal = None
    if appended is not None:
        # A transaction removes the second file, then the first. In between, it may be committed
        # or not.
        if replaced is None:
            raise _ChangingError("a transaction is at its end")
        journal = transaction_journal.parse(appended, replaced)
        if journal is None:
            raise HostError(
                f"{control}/store/{transaction_journal.NAME}: of another version of Mercurial"
            )
    stamps = tuple(_stamp(control, name) for name in (CHANGELOG, *APPENDED, *REPLACED))
    return _Look(journal, stamps)


def _agree(before: _Look, after: _Look) -> bool:
    """Whether the state is the same in both: a running transaction may append to other files."""
    if before.stamps != after.stamps or (before.journal is None) != (after.journal is None):
        return False
    if before.journal is None or after.journal is None:
        return True
    return all(
        before.journal.sizes.get(name) == after.journal.sizes.get(name)
        and before.journal.copies.get(name, name) == after.journal.copies.get(name, name)
        for name in (CHANGELOG, *APPENDED, *REPLACED)
    )


def _stamp(control: Path, name: str) -> Stamp:
    try:
        status = (control / name).lstat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _size(control: Path, name: str) -> int:
    stamp = _stamp(control, name)
    return stamp[1] if stamp else 0


def _read(control: Path, name: str) -> bytes | None:
    """Read a file, without following a link that the owner of the repository put in its place.

    A missing file is None.
    """
    try:
        descriptor = os.open(control / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def has_record(control: Path, end: int, record_hash: str) -> bool:
    """Whether a repository's push log has a record with this hash that ends at that byte.

    After a restore, other records may have the same numbers. Raises HostError and OSError.
    """
    try:
        line = _last_line(control, end)
    except (_ChangingError, FileNotFoundError):
        return False
    return hash_of(line) == record_hash if line else not record_hash


def _last_line(control: Path, size: int) -> bytes:
    """Return the last line of the push log within its first `size` bytes, empty if there is none.

    Sessions append whole lines, so the committed part ends with a line feed.
    """
    if not size:
        return b""
    descriptor = os.open(control / PUSHLOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        step, chunk = 64 * 1024, b""
        while len(chunk) < min(size, _TAIL):
            start = max(0, size - step)
            chunk = os.pread(descriptor, size - start, start)
            if len(chunk) != size - start or not chunk.endswith(b"\n"):
                raise _ChangingError("its push log was cut")
            begin = chunk.rfind(b"\n", 0, -1)
            if begin >= 0 or start == 0:
                return chunk[begin + 1 : -1]
            step *= 4
    finally:
        os.close(descriptor)
    raise HostError(f"{control}: the last line of the push log is longer than {_TAIL} bytes")

"""Slots of SSH sessions: a person has a few at a time, and each push's data is counted.

Each person has files `PERSON.NUMBER.slot` in a folder of the host. A session holds a kernel lock
(flock) on one of them as long as its process lives, and the kernel frees it at the end, however the
process ends. While it has the slot, `PERSON.NUMBER.push` is the data that it receives. If the slot
is free, such data is left over from a killed session; the next push removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.hg.sessions.incoming import SessionEndError, SpoolLimits, size_text, spool_refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STEP: Final = 16 * 2**20
"""Bytes of a push between two checks of the disk and of the person's other pushes."""

_PUSH: Final = re.compile(r"(?P<person>[A-Za-z0-9._-]+)\.(?P<number>[0-9]+)\.push")
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Slot:
    """A session's slot, held until the process ends or `leave`."""

    def __init__(self, folder: str, person: str, number: int, descriptor: int) -> None:
        """Only `take` makes it."""
        self.folder, self.person, self.number = folder, person, number
        self.descriptor = descriptor

    @property
    def push_name(self) -> str:
        """The name of the file with the data that this session receives."""
        return f"{self.person}.{self.number}.push"

    def leave(self) -> None:
        """Give the slot back."""
        os.close(self.descriptor)


def take(folder: str, person: str, most: int) -> Slot:
    """Take a free slot of a person.

    Raises SessionEndError where all are in use, OSError where the folder cannot be used.
    """
    for number in range(most):
        descriptor = os.open(f"{folder}/{person}.{number}.slot", _OPEN, 0o600)
        if files.try_lock(descriptor):
            return Slot(folder, person, number, descriptor)
        os.close(descriptor)
    raise SessionEndError(
        "sessions",
        f"{person} has too many sessions on this server: {most} at a time are allowed; "
        "wait until a clone, pull or push of yours is done, or end a session",
    )


def remove_leftovers(folder: str) -> None:
    """Remove the data of sessions that were killed."""
    for path in Path(folder).iterdir():
        if _PUSH.fullmatch(path.name) is None:
            continue
        descriptor = os.open(path.with_suffix(".slot"), _OPEN, 0o600)
        try:
            if files.try_lock(descriptor):
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def bytes_of(folder: str, person: str) -> int:
    """Return the bytes of all pushes of a person that are under way."""
    total = 0
    for path in Path(folder).iterdir():
        match = _PUSH.fullmatch(path.name)
        if match is not None and match["person"] == person:
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
    return total


@contextlib.contextmanager
def received(
    slot: Slot | None, pieces: Iterable[bytes], limits: SpoolLimits
) -> Iterator[IO[bytes]]:
    """Write the data of a push to disk; yield the file, at its beginning.

    Without a slot the file is in the temporary folder and only its own size is bounded. The file
    is removed at the end. Raises SessionEndError where there is no room.
    """
    with _file(slot) as file:
        sent = checked = 0
        for piece in pieces:
            sent += len(piece)
            if sent - checked >= STEP or sent > limits.push:
                _write(file, b"", sent)
                _check(slot, file, sent, limits)
                checked = sent
            _write(file, piece, sent)
        _write(file, b"", sent)
        _check(slot, file, sent, limits)
        file.seek(0)
        yield file


@contextlib.contextmanager
def _file(slot: Slot | None) -> Iterator[IO[bytes]]:
    if slot is None:
        with tempfile.TemporaryFile() as file:
            yield file
        return
    remove_leftovers(slot.folder)
    path = Path(slot.folder) / slot.push_name
    descriptor = os.open(path, _OPEN | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
    finally:
        path.unlink(missing_ok=True)


def _write(file: IO[bytes], piece: bytes, sent: int) -> None:
    try:
        if piece:
            file.write(piece)
        else:
            file.flush()
    except OSError as problem:
        raise SessionEndError(
            "disk",
            f"this push cannot be stored ({problem.strerror}; {size_text(sent)} were sent); "
            "nothing was changed; tell the operators",
        ) from problem


def check_room(slot: Slot | None, limits: SpoolLimits) -> str | None:
    """Return the reason why a push may not begin, or None."""
    if slot is None:
        return None
    return spool_refusal(0, bytes_of(slot.folder, slot.person), _free(slot.folder), limits)


def _check(slot: Slot | None, file: IO[bytes], sent: int, limits: SpoolLimits) -> None:
    if slot is None:
        person, free = sent, limits.free
    else:
        written = os.fstat(file.fileno()).st_size
        person = bytes_of(slot.folder, slot.person) + sent - written
        free = _free(slot.folder)
    if sentence := spool_refusal(sent, person, free, limits):
        raise SessionEndError("spool", sentence)


def _free(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize

"""Bytes that forks and pushes are about to add, reserved for an owner before they are written.

Two changes at the same time would each be compared with the size before the other. So a change
reserves its bytes under a lock of the owner, and counts the reservations of others. In the folder
of the dynamic registry:

=======================  =======================================================================
`OWNER.lock`             locked (flock) while a change is compared with the quota
`OWNER.NUMBER.reserved`  bytes, bytes that are written already, and the path of a fork; locked as
                         long as a process has it open: the session, and the hg that copies for it
=======================  =======================================================================

The kernel ends a lock with the last process that has it, however it ends, so a killed fork reserves
nothing. The next change of the owner removes its file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import TemporaryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

FOLDER: Final = "reservations"
"""Name of the folder, in the folder of the dynamic registry."""

LOCK_WAIT_S: Final = 30.0
"""The lock is held while sizes are read, or measured again once a week."""

_NAME: Final = re.compile(r"(?P<owner>[a-z0-9._-]+)\.(?P<number>[0-9]+)\.reserved")
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reserved bytes of a change; `path` is the new repository of a fork, "" for a push."""

    size: int
    written: int = 0
    path: str = ""


class Reservation:
    """A reservation of this process, until `release` or the end of all processes that have it."""

    def __init__(self, name: str, descriptor: int) -> None:
        """Only `Owner.reserve` makes it."""
        self.name, self.descriptor = name, descriptor

    def note(self, reserved: Reserved) -> None:
        """Replace the reserved bytes."""
        line = f"{reserved.size} {reserved.written} {reserved.path}\n".encode()
        os.pwrite(self.descriptor, line, 0)
        os.ftruncate(self.descriptor, len(line))

    def release(self) -> None:
        """End the reservation."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name)  # noqa: PTH108  (pathlib is slow to import)
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Owner:
    """The changes of an owner, while no other process reads or changes them."""

    folder: str
    name: str

    def reserved(self, registered: Collection[str] = (), own: Reservation | None = None) -> int:
        """Return the bytes that changes of the owner have reserved, but for the caller's `own`.

        A fork that is registered counts with its own size. Files of killed changes are removed.
        """
        total = 0
        for path, owner in _files(self.folder):
            if owner != self.name or (own is not None and path == own.name):
                continue
            reserved = _held(path)
            if reserved is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108  (pathlib is slow to import)
            elif not (reserved.path and reserved.path in registered):
                total += reserved.size
        return total

    def reserve(self, reserved: Reserved) -> Reservation:
        """Reserve so much for the owner; raises OSError."""
        number = 0
        while True:
            name = f"{self.folder}/{self.name}.{number}.reserved"
            try:
                descriptor = os.open(name, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:
                number += 1
        reservation = Reservation(name, descriptor)
        # A reader of all reservations may hold the lock for a moment.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        reservation.note(reserved)
        return reservation


def folder_of(dynamic: str) -> str:
    """Return the folder of reservations of a host."""
    above = dynamic.rpartition("/")[0]
    return f"{above}/{FOLDER}"


@contextlib.contextmanager
def locked(folder: str, owner: str, wait: float = LOCK_WAIT_S) -> Iterator[Owner]:
    """Compare a change of this owner with the quota, while no other process does.

    Raises OSError where the folder cannot be used, TemporaryError if it stays locked.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)  # noqa: PTH102  (pathlib is slow to import)
    descriptor = os.open(f"{folder}/{owner}.lock", _OPEN | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + wait
        while not files.try_lock(descriptor):
            if time.monotonic() >= until:
                raise TemporaryError(
                    f"Another change of the repositories of {owner} is compared with the limit of "
                    f"their size for more than {wait:.0f} s: try again in a minute."
                )
            time.sleep(0.01)
        yield Owner(folder, owner)
    finally:
        os.close(descriptor)


def to_be_written(folder: str) -> int:
    """Return the bytes that forks of all owners have reserved and not yet written."""
    total = 0
    for path, _owner in _files(folder):
        reserved = _held(path)
        if reserved is not None and reserved.path:
            total += max(0, reserved.size - reserved.written)
    return total


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the owner of each reservation."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  (pathlib is slow to import)
    except FileNotFoundError:
        return
    for name in names:
        if match := _NAME.fullmatch(name):
            yield f"{folder}/{name}", match["owner"]


def _held(path: str) -> Reserved | None:
    """Return the content of a reservation, None if no process has it any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared: another process that only reads does not count as a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        words = os.read(descriptor, 4096).decode("ascii", "replace").rstrip("\n").split(" ", 2)
        if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal():
            return Reserved(int(words[0]), int(words[1]), words[2])
        # The reservation is being written at this moment.
        return Reserved(0)
    else:
        return None
    finally:
        os.close(descriptor)

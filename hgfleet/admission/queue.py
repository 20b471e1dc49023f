"""Queue of clones for the slots of a host: a few are served at a time, the others wait in order.

A clone without a bundle takes a core of the server for as long as it lasts, over SSH or HTTPS.

The queue is a folder in RAM that all processes of the host which serve clones share. Each clone has
a file there, named `NUMBER.waiting` and then `NUMBER.served`, and holds a kernel lock (flock) on it
for as long as its process lives. The kernel frees the locks of an ended process, so a file with a
free lock has no owner, and the next process that reads the folder removes it. Every process reads
and changes the folder under the lock of the folder itself.

Two invariants hold for a host. At any time, no more clones are served than there are slots, not
counting clones that have been served for longer than `hold`. And no clone overtakes a waiting
clone, unless the waiting clone has not asked for its slot for `FRESH_SECONDS` (its process is
stopped, or its client takes no data).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import HgfleetError
from hgfleet.core.stored_time import age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

FRESH_SECONDS: Final = 10.0
"""A clone that did not ask for its slot for so long is skipped. It keeps its place."""

LOCK_SECONDS: Final = 2.0
"""The time to try for the lock of the folder; it is held for about a millisecond."""

LEAST_PART: Final = 10
"""An answer with less than this part of the changesets (1 in so many) is an ordinary pull."""

_MOST_FILES: Final = 2000
_NAME = re.compile(r"(?P<number>[0-9]{12})\.(?P<state>waiting|served)")


class BusyError(HgfleetError):
    """The queue is full."""

    exit_code = 75


@dataclass(frozen=True, slots=True)
class Limits:
    """The number of slots, the length of the queue, and the longest wait (`patience`, seconds).

    A clone that is served for longer than `hold` seconds goes on, and its slot is free for the next
    clone: either its client is slow, and costs little, or the repository is so large that all other
    clones would give up.
    """

    slots: int
    waiting: int
    patience: float
    hold: float


@dataclass(frozen=True, slots=True)
class Ticket:
    """A clone in the queue; `is_fresh`: it asked for its slot a moment ago."""

    number: int
    is_served: bool
    is_fresh: bool = True


@dataclass(frozen=True, slots=True)
class Position:
    """The place of a waiting clone: clones served now, and clones that wait before it."""

    served: int
    before: int

    def __str__(self) -> str:
        """Return the sentence for the waiting client."""
        others = f", and {self.before} wait before this clone" if self.before else ""
        return f"waiting for a slot: {_clones(self.served)} being served{others}"

    @property
    def pause_seconds(self) -> float:
        """Seconds until the next request for a slot: longer at the end of the queue."""
        return min(2.0, 0.25 * (self.before + 1))


def _clones(number: int) -> str:
    return f"{number} clone{' is' if number == 1 else 's are'}"


def is_costly(
    changesets: int, *, of: int, most_changesets: int, weighs_much: Callable[[], bool]
) -> bool:
    """Whether an answer with that many changesets of a repository of `of` needs a slot.

    An answer of fewer than `most_changesets` needs a slot if it is large: a client that says it has
    only the first changeset gets the rest, and costs as much as a clone. `weighs_much` is only
    called for an answer that may be large: an ordinary pull, of less than a tenth of the
    repository, never needs a slot.
    """
    if changesets >= most_changesets:
        return True
    return changesets > 0 and changesets * LEAST_PART >= of and weighs_much()


def position(tickets: Sequence[Ticket], mine: int, slots: int) -> Position | None:
    """Return the place of a waiting clone in the queue; None: a slot is free for it."""
    # Slots are not passed on from clone to clone. A waiting clone takes a slot by itself, as soon
    # as the clones being served, and the fresh clones that wait before it, leave a slot for it. A
    # clone that is not fresh keeps its number, and has its place again as soon as it asks.
    served = sum(ticket.is_served for ticket in tickets)
    before = sum(
        ticket.is_fresh and not ticket.is_served and ticket.number < mine for ticket in tickets
    )
    return None if served + before < slots else Position(served, before)


def refusal(tickets: Sequence[Ticket], limits: Limits) -> str | None:
    """Return the refusal for a clone that finds the queue full; None: there is a place."""
    served = sum(ticket.is_served for ticket in tickets)
    waiting = sum(ticket.is_fresh and not ticket.is_served for ticket in tickets)
    if served + waiting < limits.slots + limits.waiting:
        return None
    return f"{_clones(served)} being served and {waiting} wait; try again in some minutes"


def gave_up(at: Position, limits: Limits) -> str:
    """Return the refusal for a clone that got no slot in time."""
    return (
        f"waited {limits.patience:.0f} seconds, and {_clones(at.served)} still being served; "
        "try again in some minutes"
    )


def weighs_more(folder: Path, most: int) -> bool:
    """Whether the files in a folder have more bytes than `most`; stops at the first answer."""
    total = files = 0
    folders = [os.fspath(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                total += entry.stat(follow_symlinks=False).st_size
                files += 1
                if total > most or files > _MOST_FILES:
                    return True
    return False


class QueuePlace:
    """The place of a clone in the queue, from `enter` to `leave`."""

    def __init__(self, folder: Path, limits: Limits, number: int, descriptor: int) -> None:
        """Only `enter` makes it."""
        self._folder, self._limits = folder, limits
        self._number, self._descriptor = number, descriptor
        self._path = folder / f"{number:012}.waiting"
        self._leaving = threading.Lock()
        self._timer: threading.Timer | None = None

    def ask(self) -> Position | None:
        """Take a slot and return None, or return the place in the queue; raises OSError."""
        os.utime(self._descriptor)
        with _locked(self._folder):
            at = position(_tickets(self._folder), self._number, self._limits.slots)
            if at is None:
                self._path = self._path.rename(self._path.with_suffix(".served"))
        return at

    def hold(self, late: Callable[[], None]) -> None:
        """Give the slot back after the longest time; `late` is called then, in another thread."""
        self._timer = threading.Timer(self._limits.hold, self.leave, [late])
        self._timer.daemon = True
        self._timer.start()

    def leave(self, before: Callable[[], None] | None = None) -> bool:
        """Give the place or the slot back; False on a second call. Never fails.

        `before` is called before another clone can have the slot, so a log that it writes never
        shows more clones than slots.
        """
        with self._leaving:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor < 0:
                return False
            try:
                if before is not None:
                    before()
            finally:
                with contextlib.suppress(OSError):
                    self._path.unlink()
                os.close(descriptor)
        if self._timer is not None:
            self._timer.cancel()
        return True


def enter(folder: Path, limits: Limits, label: str) -> QueuePlace:
    """Take a place at the end of the queue; `label` is a line in the file, for operators.

    Raises BusyError where too many wait, OSError where there is no queue.

    The number is chosen, and the file is made and locked, under the lock of the folder. So no two
    clones have the same number, and no process finds the new file without the lock of its owner,
    which would make it remove the file.
    """
    with _locked(folder):
        tickets = _tickets(folder)
        if sentence := refusal(tickets, limits):
            raise BusyError(sentence)
        number = max((ticket.number for ticket in tickets), default=0) + 1
        descriptor = os.open(
            folder / f"{number:012}.waiting", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, f"{label}\n".encode("utf-8", "replace"))
        except BaseException:
            os.close(descriptor)
            raise
    return QueuePlace(folder, limits, number, descriptor)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; raises TimeoutError if another process keeps it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not files.try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{folder} is locked")
            time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _tickets(folder: Path) -> list[Ticket]:
    """Read the tickets in order, and remove tickets of ended processes; under the lock."""
    tickets = []
    now = time.time()
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if files.try_lock(descriptor):
                path.unlink(missing_ok=True)
                continue
            asked_at = os.fstat(descriptor).st_mtime
            is_fresh = age(asked_at, now, FRESH_SECONDS) < FRESH_SECONDS
        finally:
            os.close(descriptor)
        tickets.append(Ticket(int(name["number"]), name["state"] == "served", is_fresh))
    return sorted(tickets, key=lambda ticket: ticket.number)

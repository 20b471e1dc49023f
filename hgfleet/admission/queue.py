"""Who is served a clone at once, and who waits for a turn.

A clone that no bundle covers takes a core of the server for as long as it lasts. So a host serves a
few at a time, over SSH and HTTPS together, and the others wait in the order in which they came.

The queue is a folder in RAM that belongs to the processes of this host which serve clones. Each
clone has a file there, called `NUMBER.waiting` and then `NUMBER.served`, and holds the kernel's
lock (flock) on it for as long as it lives. Whatever ends a process frees its locks, so a file whose
lock is free belongs to nobody, and the next one that looks removes it. All looks and moves happen
under the lock of the folder itself, one after the other.

What holds, per host: at no time are more clones served than there are slots, but for those that had
theirs for longer than `hold`; and nobody overtakes a clone that waits, unless that one has not
asked for its turn for `FRESH` seconds (its process is stopped, or its client takes no data).
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

from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

FRESH: Final = 10.0
"""Seconds after which a clone that did not ask for its turn is passed over. It keeps its place."""

LOCK_S: Final = 2.0
"""For how long to try for the lock of the folder (seconds); it is held for about a millisecond."""

_MOST_FILES: Final = 2000
_NAME = re.compile(r"(?P<number>[0-9]{12})\.(?P<state>waiting|served)")


class BusyError(HgfleetError):
    """So many wait that one more would wait too long."""

    exit_code = 75


@dataclass(frozen=True, slots=True)
class Limits:
    """How many clones are served at a time, how many may wait, and for how long (seconds).

    A clone that is served for longer than `hold` goes on, and its slot is free for the next: its
    client is slow, and so is no burden, or the repository is huge, and all others would give up.
    """

    slots: int
    waiting: int
    patience: float
    hold: float


@dataclass(frozen=True, slots=True)
class Ticket:
    """A clone that waits or is served; `is_fresh`: it asked for its turn a moment ago."""

    number: int
    is_served: bool
    is_fresh: bool = True


@dataclass(frozen=True, slots=True)
class Position:
    """How many clones are served now, and how many wait before this one."""

    served: int
    before: int

    def __str__(self) -> str:
        """Say it to whoever waits."""
        others = f", and {self.before} wait before this one" if self.before else ""
        return f"waiting for a slot: {_clones(self.served)} being served{others}"

    @property
    def pause(self) -> float:
        """Seconds until it makes sense to look again: the farther back, the longer."""
        return min(2.0, 0.25 * (self.before + 1))


def _clones(number: int) -> str:
    return f"{number} clone{' is' if number == 1 else 's are'}"


def is_costly(
    changesets: int, *, is_clone: bool, most_changesets: int, weighs_much: Callable[[], bool]
) -> bool:
    """Decide whether an answer with that many changesets needs a slot.

    A clone counts as well when its changesets are few and what they hold is large; `weighs_much`
    says so, and is asked only where it matters. An ordinary pull of a few changesets never counts.
    """
    if changesets >= most_changesets:
        return True
    return is_clone and changesets > 0 and weighs_much()


def position(tickets: Sequence[Ticket], mine: int, slots: int) -> Position | None:
    """Where a clone that waits stands; None: it is its turn."""
    served = sum(ticket.is_served for ticket in tickets)
    before = sum(
        ticket.is_fresh and not ticket.is_served and ticket.number < mine for ticket in tickets
    )
    return None if served + before < slots else Position(served, before)


def refusal(tickets: Sequence[Ticket], limits: Limits) -> str | None:
    """The sentence for a clone for which there is no place to wait; None: there is one."""
    served = sum(ticket.is_served for ticket in tickets)
    waiting = sum(ticket.is_fresh and not ticket.is_served for ticket in tickets)
    if served + waiting < limits.slots + limits.waiting:
        return None
    return f"{_clones(served)} being served and {waiting} wait; try again in some minutes"


def gave_up(at: Position, limits: Limits) -> str:
    """The sentence for a clone whose turn has not come in time."""
    return (
        f"waited {limits.patience:.0f} seconds, and {_clones(at.served)} still being served; "
        "try again in some minutes"
    )


def weighs_more(folder: Path, most: int) -> bool:
    """Whether the files in a folder have more bytes than that; looks no longer than it has to."""
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


# --- the queue --------------------------------------------------------------------------------


class QueuePlace:
    """The place of one clone in the queue, from `enter` to `leave`."""

    def __init__(self, folder: Path, limits: Limits, number: int, descriptor: int) -> None:
        """Made by `enter` alone."""
        self._folder, self._limits = folder, limits
        self._number, self._descriptor = number, descriptor
        self._path = folder / f"{number:012}.waiting"
        self._leaving = threading.Lock()
        self._timer: threading.Timer | None = None

    def ask(self) -> Position | None:
        """Take a slot and return None, or say where this one stands; raises OSError."""
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
        """Give the place or the slot back; False if that had been done. Never fails.

        `before` is called before anybody else can have the slot: a log that is written there never
        shows more clones than are served.
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


def enter(folder: Path, limits: Limits, who: str) -> QueuePlace:
    """Take a place at the end of the queue; `who` is a line for operators who look.

    Raises BusyError where too many wait, OSError where there is no queue.
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
            os.write(descriptor, f"{who}\n".encode("utf-8", "replace"))
        except BaseException:
            os.close(descriptor)
            raise
    return QueuePlace(folder, limits, number, descriptor)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; raises TimeoutError if somebody does not give it back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_S
        while not _lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{folder} is locked")
            time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tickets(folder: Path) -> list[Ticket]:
    """Read who is there, in order, and remove what ended processes left; under the lock."""
    found = []
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
            if _lock(descriptor):
                path.unlink(missing_ok=True)
                continue
            is_fresh = now - os.fstat(descriptor).st_mtime < FRESH
        finally:
            os.close(descriptor)
        found.append(Ticket(int(name["number"]), name["state"] == "served", is_fresh))
    return sorted(found, key=lambda ticket: ticket.number)

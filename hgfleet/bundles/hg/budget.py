"""Limits of a run on processors, memory, and the scratch folder in RAM.

The decisions are pure (`estimate`, `admits`, `room_needed`); `Gate` lets threads wait for them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIB: Final = 1024 * 1024

HG_MEMORY: Final = 64 * MIB
"""Memory of an hg with a small repository open (measured: 35 MB for a stream, 39 MB for gzip)."""

ZSTD_MEMORY: Final = (
    (22, 700 * MIB),
    (21, 400 * MIB),
    (20, 256 * MIB),
    (16, 128 * MIB),
    (10, 48 * MIB),
    (1, 16 * MIB),
)
"""Memory of the compression from this level on (measured: 7 MB at level 3, 29 at 10, 41 at 16, 170
at 20, 660 at 22)."""

ZSTD_WINDOW: Final = ((22, 128 * MIB), (21, 64 * MIB), (20, 32 * MIB))
"""Memory of a client for the decompression from this level on. Lower levels need little more than
hg itself (read from the frames of bundles: 2 MiB at level 3, 4 at 10, 8 at 19)."""

CLONE: Final = "clone"
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of a step while it runs: `cpus` processors, `memory` bytes."""

    cpus: int = 1
    memory: int = HG_MEMORY


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds on the needs of all steps together."""

    cpus: int
    memory: int


def estimate(step: str, store: int, zstd_level: int = 10) -> Need:
    """Estimate the needs of a step: `step` is a kind of bundle, CLONE or SNAPSHOT.

    `store` is the size of the repository's store in bytes. Indexes are held in memory (about a
    tenth of a store of small changes); a stream is copied file by file and holds none of them.
    """
    if step == "stream":
        return Need(memory=HG_MEMORY)
    memory = HG_MEMORY + store // 10
    if step == "zstd":
        memory += next(size for level, size in ZSTD_MEMORY if zstd_level >= level)
    return Need(memory=memory)


def required_ram(kind: str, zstd_level: int) -> int:
    """Return the bytes that a client needs for a bundle, 0 where every client has enough.

    The manifest has the number as REQUIREDRAM: hg skips a bundle that needs more than two thirds of
    the memory of its machine.
    """
    windows = (size for level, size in ZSTD_WINDOW if kind == "zstd" and zstd_level >= level)
    return next((HG_MEMORY + size for size in windows), 0)


def admits(bounds: Bounds, running: Iterable[Need], need: Need) -> bool:
    """Whether a step may begin while others run.

    A step beyond the bounds may begin when no other step runs: an estimate must not keep a
    repository without bundles for ever.
    """
    running = list(running)
    if not running:
        return True
    return (
        sum(other.cpus for other in running) + need.cpus <= bounds.cpus
        and sum(other.memory for other in running) + need.memory <= bounds.memory
    )


def room_needed(store: int, kinds: int) -> int:
    """Return the most bytes of scratch that a repository needs while its bundles are made.

    That is the snapshot, each bundle once, and a single clone of each bundle at a time; a bundle or
    a clone is hardly larger than the store of the repository.
    """
    return store * (1 + 2 * kinds) + MIB


class Gate:
    """Lets steps begin within the bounds, in the order of their arrival.

    So small steps never overtake a large step for ever.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._running: list[Need] = []
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """The number of waiting steps."""
        with self._changed:
            return len(self._waiting)

    @contextlib.contextmanager
    def enter(self, need: Need) -> Iterator[None]:
        """Wait until a step may begin, and hold its needs while it runs."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(
                lambda: self._waiting[0] is ticket and admits(self._bounds, self._running, need)
            )
            self._waiting.popleft()
            self._running.append(need)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(need)
                self._changed.notify_all()


class Room:
    """The free bytes of the scratch folder in RAM."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take bytes if enough are free; never waits, since the disk will do as well."""
        with self._lock:
            if size > self._free:
                return False
            self._free -= size
            return True

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._free += size

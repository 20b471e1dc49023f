"""How much may be done at the same time: processors, memory, and the scratch folder in RAM.

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
"""Of an hg with a small repository open (measured: 35 MB for a stream, 39 MB for gzip)."""

ZSTD_MEMORY: Final = (
    (22, 700 * MIB),
    (21, 400 * MIB),
    (20, 256 * MIB),
    (16, 128 * MIB),
    (10, 48 * MIB),
    (1, 16 * MIB),
)
"""What compression adds, from this level on (measured: 7 MB at level 3, 29 at 10, 41 at 16, 170 at
20, 660 at 22)."""

ZSTD_WINDOW: Final = ((22, 128 * MIB), (21, 64 * MIB), (20, 32 * MIB))
"""What a client has to hold to decompress, from this level on (read from the frames of bundles: 2
MiB at level 3, 4 at 10, 8 at 19). Less than that is of no account beside hg itself."""

CLONE: Final = "clone"
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True, slots=True)
class Need:
    """What one step takes while it runs: `cpus` processors, `memory` bytes."""

    cpus: int = 1
    memory: int = HG_MEMORY


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all steps together may take."""

    cpus: int
    memory: int


def estimate(step: str, store: int, zstd_level: int = 10) -> Need:
    """Guess what a step takes: `step` is a kind of bundle, CLONE or SNAPSHOT.

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
    """Return the bytes that a client needs for a bundle, 0 where every client has them.

    With these in the manifest (REQUIREDRAM), hg passes over a bundle that takes more than two
    thirds of its machine's memory.
    """
    windows = (size for level, size in ZSTD_WINDOW if kind == "zstd" and zstd_level >= level)
    return next((HG_MEMORY + size for size in windows), 0)


def admits(bounds: Bounds, running: Iterable[Need], need: Need) -> bool:
    """Whether a step may begin beside those that run.

    One that is larger than all bounds may begin when nothing else runs: an estimate must not keep a
    repository from ever getting its bundles.
    """
    running = list(running)
    if not running:
        return True
    return (
        sum(one.cpus for one in running) + need.cpus <= bounds.cpus
        and sum(one.memory for one in running) + need.memory <= bounds.memory
    )


def room_needed(store: int, kinds: int, stores: int) -> int:
    """Bytes of scratch that one repository takes at most, while its bundles are made.

    The snapshot, each bundle once, and a clone of each bundle for each store; a bundle and a clone
    are hardly larger than the store they are made of.
    """
    return store * (1 + kinds * (1 + stores)) + MIB


class Gate:
    """Lets steps begin within the bounds.

    First come, first served: a large one is not overtaken for ever by small ones.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._running: list[Need] = []
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        with self._changed:
            return len(self._waiting)

    @contextlib.contextmanager
    def enter(self, need: Need) -> Iterator[None]:
        """Wait for the turn of a step, and take what it needs while it runs."""
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
    """Bytes of the scratch folder in RAM that nobody has taken yet."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take some if there is enough; never waits, since the disk does as well."""
        with self._lock:
            if size > self._free:
                return False
            self._free -= size
            return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self._free += size

"""Order of upgrades, and the room for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hgfleet.storage.formats import Decision

MARGIN: Final = 1.25
"""Size of a new store in parts of the old one: zstd needs about the same, never much more."""

RESERVE: Final = 512 * 1024**2
"""Bytes for pushes and all other writers on the file system."""

RESERVE_SHARE: Final = 0.02
"""The same as a share of the file system; the larger one counts."""

SPEED: Final = 2_000_000
"""Bytes of store a second (one core of 2026; with reading, writing and checking). For estimates."""

FILES_MARGIN: Final = 1000
"""Inodes to keep free."""


class Candidate(NamedTuple):
    """A repository, the size of its store in bytes, and the number of files in it."""

    path: str
    decision: Decision
    size: int
    files: int
    identity: str = ""
    """Of the entry in the registry; the upgrade refuses another repository at the path."""


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Largest first: the one that takes longest must not be the one that begins last."""
    return sorted(candidates, key=lambda one: (-one.size, one.path))


def room(size: int) -> int:
    """Return the most bytes that a new store is expected to need."""
    return int(size * MARGIN)


def seconds(size: int) -> float:
    """Estimate the time of an upgrade."""
    return size / SPEED


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: bytes and inodes, all and free ones (`inodes` is 0 where it has no count)."""

    size: int
    free: int
    inodes: int = 0
    free_inodes: int = 0


@dataclass(slots=True)
class Ledger:
    """The room on a disk that running upgrades will still take."""

    promised: dict[str, tuple[int, int]] = field(default_factory=dict)

    def shortage(self, one: Candidate, disk: Disk) -> str | None:
        """Return the shortage of room for a repository, or None."""
        taken = sum(size for size, _ in self.promised.values())
        reserve = max(RESERVE, int(disk.size * RESERVE_SHARE))
        need, free = room(one.size), disk.free - taken - reserve
        if need > free:
            kept = f"{_mb(reserve)} are kept free"
            others = f", other upgrades take {_mb(taken)}" if taken else ""
            return (
                f"the new store needs up to {_mb(need)} and {_mb(disk.free)} are free ({kept}"
                f"{others}): {_mb(need - free)} are missing"
            )
        files = sum(count for _, count in self.promised.values()) + one.files + FILES_MARGIN
        if disk.inodes and files > disk.free_inodes:
            return (
                f"the new store has {one.files:,} files, and {disk.free_inodes:,} inodes are free"
            )
        return None

    def take(self, one: Candidate) -> None:
        """Begin with a repository."""
        self.promised[one.path] = (room(one.size), one.files)

    def release(self, path: str) -> None:
        """A repository has ended."""
        self.promised.pop(path, None)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"

"""Order of upgrades, and the room for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hgfleet.storage.repository_formats import Decision

MARGIN: Final = 1.25
"""Size of a new store as a fraction of the old: zstd needs about the same, never much more."""

RESERVE: Final = 512 * 1024**2
"""Bytes for pushes and all other writers on the file system."""

RESERVE_SHARE: Final = 0.02
"""The same as a share of the file system; the larger of the two counts."""

SPEED: Final = 2_000_000
"""Bytes of store a second (a core of 2026; with reading, writing and checking). For estimates."""

FILES_MARGIN: Final = 1000
"""Inodes to keep free."""


class Candidate(NamedTuple):
    """A repository, the size of its store in bytes, and the number of files in it."""

    path: str
    decision: Decision
    size: int
    files: int
    identity: str = ""
    """Identity in the registry; the upgrade refuses another repository at the path."""


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Largest first: the repository that takes longest must not begin last."""
    return sorted(candidates, key=lambda candidate: (-candidate.size, candidate.path))


def room(size: int) -> int:
    """Return the most bytes that a new store is expected to need."""
    return int(size * MARGIN)


def seconds(size: int) -> float:
    """Estimate the time of an upgrade."""
    return size / SPEED


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: bytes and inodes, all and free (`inodes` is 0 where it has no count)."""

    size: int
    free: int
    inodes: int = 0
    free_inodes: int = 0


@dataclass(slots=True)
class Ledger:
    """The room on a disk that running upgrades will still take."""

    promised: dict[str, tuple[int, int]] = field(default_factory=dict)

    def shortage(self, candidate: Candidate, disk: Disk) -> str | None:
        """Return the shortage of room for a repository, or None."""
        taken = sum(size for size, _ in self.promised.values())
        reserve = max(RESERVE, int(disk.size * RESERVE_SHARE))
        need, free = room(candidate.size), disk.free - taken - reserve
        if need > free:
            kept = f"{_mb(reserve)} are kept free"
            others = f", other upgrades take {_mb(taken)}" if taken else ""
            return (
                f"the new store needs up to {_mb(need)} and {_mb(disk.free)} are free ({kept}"
                f"{others}): {_mb(need - free)} are missing"
            )
        files = sum(count for _, count in self.promised.values()) + candidate.files + FILES_MARGIN
        if disk.inodes and files > disk.free_inodes:
            have = f"{disk.free_inodes:,} inodes are free"
            return f"the new store has {candidate.files:,} files, and {have}"
        return None

    def take(self, candidate: Candidate) -> None:
        """Reserve room for a repository."""
        self.promised[candidate.path] = (room(candidate.size), candidate.files)

    def release(self, path: str) -> None:
        """Release the room of a repository."""
        self.promised.pop(path, None)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"

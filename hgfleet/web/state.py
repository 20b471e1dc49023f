"""The state of a repository as the stat of the files that define it.

Whatever hgweb and the cheap wire commands answer is a function of these files: each commit of a
transaction changes the size of the changelog or replaces phases, bookmarks or obsolescence markers;
configuration, clone bundle manifest and local tags have files of their own. Caches of Mercurial
(.hg/cache) are derived and left out.

hgweb itself compares modification times in whole seconds and sizes, of four of these files: two
moves of a bookmark within one second look the same to it. Here inode, size and both times in
nanoseconds count.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FILES: Final = (
    "store/00changelog.i",
    "store/00changelog.d",
    "store/phaseroots",
    "store/obsstore",
    "store/bookmarks",
    "store/narrowspec",
    "store/requires",
    "requires",
    "bookmarks",
    "bookmarks.current",
    "localtags",
    "dirstate",
    "branch",
    "hgrc",
    "hgrc-not-shared",
    "sharedpath",
    "clonebundles.manifest",
)
"""Below .hg. A repository has about six of them; asking for all takes some 15 microseconds."""

SETTLED_NS: Final = 100_000_000
"""How long files must have been left alone to trust their stat (0.1 s).

The kernel stamps files with a clock that ticks every 1 to 10 ms: two changes within a tick can look
the same if the size stays. (git calls such an entry "racily clean".)
"""

Signature = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class State:
    """Equal states mean equal answers, if the state is settled."""

    signatures: tuple[Signature, ...]
    changed_ns: int

    def is_settled(self, now_ns: int | None = None) -> bool:
        """Whether the newest change is old enough to be told from one that comes now."""
        now = time.time_ns() if now_ns is None else now_ns
        return now - self.changed_ns > SETTLED_NS


def paths(hg: Path) -> tuple[str, ...]:
    """The files of one repository, given its .hg, to be handed to `read` again and again."""
    return tuple(f"{hg}/{name}" for name in FILES)


def read(files: tuple[str, ...]) -> State:
    """Ask the file system; a file that is missing or cannot be reached counts as missing.

    The change time decides about "settled": unlike the modification time nobody can set it.
    """
    signatures: list[Signature] = []
    changed = 0
    stat = os.stat
    for name in files:
        try:
            found = stat(name)
        except OSError:
            signatures.append(None)
            continue
        change = found.st_ctime_ns
        if change > changed:
            changed = change
        signatures.append((found.st_ino, found.st_size, found.st_mtime_ns, change))
    return State(tuple(signatures), changed)

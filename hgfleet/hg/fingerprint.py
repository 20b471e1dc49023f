"""Fingerprint of a repository: the stat of the files and folders that define its state.

The answers of hgweb and of the cheap wire commands are a function of the repository's files, which
change in these ways:

- A transaction adds to the changelog, the obsolescence markers and the push log in place: stat of
  these three.
  It replaces phases and bookmarks by renaming: that changes the folder, `.hg/store` or `.hg`. So do
  its journal and its lock, which come and go.
- Requirements, local tags and other files of `.hg` are replaced, or written under a lock in `.hg`.
- A person edits `hgrc` in place. The clone bundle manifest may be a link to a file elsewhere.

Caches of Mercurial are in `.hg/cache`, a folder of its own, and do not count.

hgweb itself compares modification times in whole seconds and sizes, of four files: two moves of a
bookmark within one second look the same to it. Here inode, size and both times in nanoseconds
count.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

WATCHED: Final = (
    "store/00changelog.i",
    "store",
    "store/obsstore",
    "store/pushlog",
    "",
    "hgrc",
    "clonebundles.manifest",
)
"""Below .hg. Each costs a system call, in which other threads of the process get their turn."""

CHANGELOG: Final = WATCHED.index("store/00changelog.i")
_STORE: Final = WATCHED.index("store")

SETTLED_NS: Final = 100_000_000
"""How long all of it must have been left alone to trust its stat (0.1 s).

The kernel stamps files with a clock that ticks every 1 to 10 ms: two changes within a tick can look
the same if the size stays. (git calls such an entry "racily clean".)
"""

Signature = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal fingerprints mean equal answers, if they were settled when they were read."""

    signatures: tuple[Signature, ...]
    changed_ns: int
    read_ns: int = field(default=0, compare=False)
    """The time just before the first stat; 0 counts as never settled."""

    def is_settled(self) -> bool:
        """Whether the newest change was old enough at the read to be told from a later one.

        Time that passes after the read proves nothing: a change may have come right after it,
        within the tick of the newest one.
        """
        return self.read_ns - self.changed_ns > SETTLED_NS


def paths(hg: Path) -> tuple[str, ...]:
    """Return the paths to watch of one repository, given its .hg; for repeated calls of `read`."""
    return tuple(f"{hg}/{name}" if name else str(hg) for name in WATCHED)


def read(watched: tuple[str, ...]) -> Fingerprint:
    """Ask the file system; a file that cannot be reached counts as missing.

    The change time decides about "settled": unlike the modification time it cannot be set.
    """
    read_ns = time.time_ns()
    signatures: list[Signature] = []
    changed = 0
    stat = os.stat
    for name in watched:
        try:
            found = stat(name)
        except OSError:
            signatures.append(None)
            continue
        change = found.st_ctime_ns
        if change > changed:
            changed = change
        signatures.append((found.st_ino, found.st_size, found.st_mtime_ns, change))
    return Fingerprint(tuple(signatures), changed, read_ns)


def read_repository(watched: tuple[str, ...]) -> Fingerprint:
    """Read the fingerprint of a repository; that of a share (a store elsewhere) never settles."""
    found = read(watched)
    if found.signatures[_STORE] is None:
        return Fingerprint(found.signatures, time.time_ns(), found.read_ns)
    return found

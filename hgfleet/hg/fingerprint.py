"""Fingerprint of a repository: the stat of the files and folders that define its state.

The answers of hgweb and of the cheap wire commands are a function of the repository's files, which
change in these ways:

- A transaction appends to the changelog, the obsolescence markers and the push log in place: the
  stat of these three files changes. It replaces phases and bookmarks by renaming, which changes the
  folder, `.hg/store` or `.hg`. So do its journal and its lock, which come and go.
- Requirements, local tags and other files of `.hg` are replaced, or written under a lock in `.hg`.
- A person edits `hgrc` in place. The clone bundle manifest may be a link to a file elsewhere.

Caches of Mercurial are in `.hg/cache`, a folder of its own, and do not count.

hgweb itself compares sizes and modification times in whole seconds, of four files: two moves of a
bookmark within a second look the same to it. The fingerprint has inode, size and both times in
nanoseconds.
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
"""Below .hg. Each costs a system call, during which other threads of the process run."""

CHANGELOG: Final = WATCHED.index("store/00changelog.i")
_STORE: Final = WATCHED.index("store")

SETTLED_NS: Final = 100_000_000
"""How long all files must have been unchanged before their stat is trusted (0.1 s).

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
    """The time just before the first stat."""

    def is_settled(self) -> bool:
        """Whether the newest change was old enough to distinguish it from a later change.

        Time that passes after the read proves nothing: a change may have come right after it,
        within the same tick as the newest change.
        """
        return self.read_ns - self.changed_ns > SETTLED_NS


def paths(hg: Path) -> tuple[str, ...]:
    """Return the paths to watch of a repository, given its .hg; for repeated calls of `read`."""
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
            status = stat(name)
        except OSError:
            signatures.append(None)
            continue
        change = status.st_ctime_ns
        if change > changed:
            changed = change
        signatures.append((status.st_ino, status.st_size, status.st_mtime_ns, change))
    return Fingerprint(tuple(signatures), changed, read_ns)


def read_repository(watched: tuple[str, ...]) -> Fingerprint:
    """Read the fingerprint of a repository; for a share (a store elsewhere) it never settles."""
    fingerprint = read(watched)
    if fingerprint.signatures[_STORE] is None:
        return Fingerprint(fingerprint.signatures, time.time_ns(), fingerprint.read_ns)
    return fingerprint

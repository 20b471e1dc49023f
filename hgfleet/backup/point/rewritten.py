"""Files of a store that were rewritten while restic read it.

Pushes append. A `hg strip`, a storage upgrade and the move of a revlog's data out of its index
(once in its life) rewrite files, and a copy that was read at the same time is of no use. Such a
repository is read again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Files = dict[str, tuple[int, int]]
"""Inode and size (bytes) of each revlog file of a store, by its path."""


def files(store: Path) -> Files:
    """Return the revlog files of a store, except files that vanish during the listing."""
    listed: Files = {}
    folders = [str(store)]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith((".i", ".d")):
                    try:
                        stat = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    listed[entry.path] = stat.st_ino, stat.st_size
    return listed


def rewritten(before: Files, after: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the files that are gone, replaced by another file, or shorter.

    An aborted push makes files shorter too; its repository is read again needlessly.
    """
    return sorted(
        path
        for path, (inode, size) in before.items()
        if path not in after or after[path][0] != inode or after[path][1] < size
    )

"""Size of a repository's store: of its content, and of the disk that it takes.

A disk is counted in blocks of 4 KiB, the block of ext4 and xfs, and computed from the length of a
file. The count of the kernel (`st_blocks`) depends on the moment: xfs gives a growing file up to
twice its length for some minutes, and zfs none before it has written.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK: Final = 4096
"""Bytes."""


def size(store: str) -> int:
    """Return the bytes of all files of a store; a folder that is missing has none."""
    return sum(_sizes(store))


def blocks(length: int) -> int:
    """Return the bytes of the blocks that a file of this length takes; an empty file has none."""
    return -(-length // BLOCK) * BLOCK


def on_disk(store: str) -> int:
    """Return the bytes of the blocks of all files and folders of a store, 0 for a missing one."""
    total = 0
    for folder, _, names in os.walk(store):
        total += BLOCK
        for name in names:
            with contextlib.suppress(OSError):
                total += blocks(os.lstat(f"{folder}/{name}").st_size)
    return total


def made_folders(made: Iterable[str]) -> int:
    """Return the number of folders that have nothing but these files, and folders of these alone.

    For files that are new, these are the folders that are new with them.
    """
    files = set(made)
    above: set[str] = set()
    for path in files:
        folder = os.path.dirname(path)  # noqa: PTH120  (pathlib is slow to import)
        while folder and folder not in above:
            above.add(folder)
            folder = folder.rpartition("/")[0]
    found: set[str] = set()
    # The folders inside of a folder have longer names.
    for folder in sorted(above, key=len, reverse=True):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            if all(entry.path in files or entry.path in found for entry in entries):
                found.add(folder)
    return len(found)


def reaches(store: str, least: int) -> bool:
    """Whether a store has at least so many bytes.

    Ends at the file that reaches the limit, so a large store costs no more than a small one.
    """
    total = 0
    if total >= least:
        return True
    for found in _sizes(store):
        total += found
        if total >= least:
            return True
    return False


def _sizes(store: str) -> Iterator[int]:
    for folder, _, names in os.walk(store):
        for name in names:
            # A transaction of this moment may remove a listed file.
            with contextlib.suppress(OSError):
                yield os.lstat(f"{folder}/{name}").st_size

"""Size of a repository's store: of its content, and of the disk that it takes.

A disk is counted in blocks of 4 KiB, the block of ext4 and xfs, and computed from the length of a
file. The kernel's count (`st_blocks`) depends on the moment: xfs gives a growing file up to twice
its length for some minutes, and zfs counts nothing before it has written.
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
    """Return the bytes of all files of a store; 0 if the folder is missing."""
    return sum(_sizes(store))


def blocks(length: int) -> int:
    """Return the bytes of the blocks that a file of this length takes; an empty file has none."""
    return -(-length // BLOCK) * BLOCK


def on_disk(store: str) -> int:
    """Return the bytes of the blocks of all files and folders of a store, 0 if it is missing."""
    total = 0
    for folder, _, names in os.walk(store):
        total += BLOCK
        for name in names:
            with contextlib.suppress(OSError):
                total += blocks(os.lstat(f"{folder}/{name}").st_size)
    return total


def made_folders(made: Iterable[str]) -> int:
    """Return the number of folders that only have these files, and such folders.

    If the files are new, these are the folders that were made for them.
    """
    # Collect all folders above the files, then test them from the inside out. A folder counts if
    # each of its entries is a file of `made` or a folder that was found to count before it.
    files = set(made)
    above: set[str] = set()
    for path in files:
        folder = os.path.dirname(path)  # noqa: PTH120  (pathlib is slow to import)
        while folder and folder not in above:
            above.add(folder)
            folder = folder.rpartition("/")[0]
    new_folders: set[str] = set()
    # A folder inside of another folder has the longer name.
    for folder in sorted(above, key=len, reverse=True):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            if all(entry.path in files or entry.path in new_folders for entry in entries):
                new_folders.add(folder)
    return len(new_folders)


def reaches(store: str, least: int) -> bool:
    """Whether a store has at least so many bytes.

    Ends at the file that reaches the limit, so a large store costs no more than a small store.
    """
    total = 0
    if total >= least:
        return True
    for file_size in _sizes(store):
        total += file_size
        if total >= least:
            return True
    return False


def _sizes(store: str) -> Iterator[int]:
    for folder, _, names in os.walk(store):
        for name in names:
            # A transaction of this moment may remove a listed file.
            with contextlib.suppress(OSError):
                yield os.lstat(f"{folder}/{name}").st_size

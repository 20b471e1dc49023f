"""Size of a repository's store on disk, whole or compared with a limit."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def size(store: str) -> int:
    """Return the bytes of all files of a store; a folder that is missing has none."""
    return sum(_sizes(store))


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

"""Size of a repository's store on disk, compared with a limit."""

from __future__ import annotations

import contextlib
import os


def reaches(store: str, size: int) -> bool:
    """Whether a store has at least so many bytes; a folder that is missing has none.

    Ends at the file that reaches the limit, so a large store costs no more than a small one.
    """
    total = 0
    if total >= size:
        return True
    for folder, _, names in os.walk(store):
        for name in names:
            # A transaction of this moment may remove a listed file.
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
            if total >= size:
                return True
    return False

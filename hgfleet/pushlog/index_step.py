"""When the index of a push log is due. Every session checks, so this imports no database."""

from __future__ import annotations

import os
from typing import Final

NAME: Final = "pushlog.sqlite"
"""The index, in the folder of caches of a repository."""

STEP: Final = 16 * 1024
"""Bytes that the index may lag behind its log before a session updates it: some 30 pushes."""

UNIT: Final = 1024
"""The unit, rounded down, in which the index records the covered bytes as its `user_version`."""

_HEADER: Final = slice(60, 64)
"""The place of `user_version` in the header of a database (SQLite's file format, 1.3)."""


def is_due(log: str, index: str) -> bool:
    """Whether the uncovered part of the log has passed `STEP`, by two cheap reads."""
    try:
        size = os.stat(log).st_size  # noqa: PTH116  (sessions call this; pathlib is slow)
    except OSError:
        return False
    return size >= STEP and size - covered_bytes(index) >= STEP


def covered_bytes(index: str) -> int:
    """Return how many bytes of its log an index covers, rounded down; 0 without an index."""
    try:
        with open(index, "rb") as file:  # noqa: PTH123  (as above)
            header = file.read(_HEADER.stop)
    except OSError:
        return 0
    return int.from_bytes(header[_HEADER], "big") * UNIT

"""Counters that many processes add to: a small file of JSON in a folder, for metrics.

    {"accepted": 12, "accepted seconds": 4.1, "access": 2}

A process adds under the lock of the folder and replaces the file, so a reader finds a complete one,
and a killed process takes no count back. The folder is in RAM: a counter begins at 0 with the host,
which Prometheus expects of counters. The keys are words of the code.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S: Final = 1.0
"""How long a process waits for the lock, which is held for a fraction of a millisecond."""

STEP_S: Final = 0.002

MAX_BYTES: Final = 65_536

MOST: Final = 2**53
"""Above it a float cannot count."""


def add(folder: str, name: str, amounts: Mapping[str, float]) -> bool:
    """Add amounts to the counters of a file; return whether the lock was free in time.

    Raises OSError, also where the folder is missing. A damaged file begins anew.
    """
    with files.open_folder(folder) as opened:
        deadline = time.monotonic() + PATIENCE_S
        while not files.try_lock(opened):
            if time.monotonic() >= deadline:
                return False
            time.sleep(STEP_S)
        counts = _read(opened, name)
        for key, amount in amounts.items():
            counts[key] = counts.get(key, 0) + amount
        files.replace_at(opened, name, json.dumps(counts) + "\n", durable=False)
    return True


def parse(text: str | bytes) -> dict[str, float]:
    """Read counters. Raises ValueError for damaged ones."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(map(_is_count, found.values())):
        raise ValueError("not a file of counters")
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST


def _read(folder: int, name: str) -> dict[str, float]:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        try:
            return parse(file.read(MAX_BYTES))
        except ValueError:
            return {}

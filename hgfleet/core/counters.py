"""Counters that many processes add to: a small file of lines in a folder, for metrics.

    accepted 12
    accepted seconds 4.1
    access 2

A process holds the lock of the folder while it replaces the file. A reader therefore finds a
complete file, and a killed process loses no count of others. The folder is in RAM: counters start
at 0 when the host boots, as Prometheus expects. Names of counters come from the code only.

Key lookup adds to counters twice at each login, so this module imports nothing slow: no `os`, no
`json`.
"""

from __future__ import annotations

import fcntl
import posix
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

PATIENCE_S: Final = 1.0
"""How long a process waits for the lock, which is held for a fraction of a millisecond."""

STEP_S: Final = 0.002

MAX_BYTES: Final = 65_536

MOST: Final = 2**53
"""Above this number a float skips integers."""


def add(
    folder: str, name: str, amounts: Mapping[str, float], *, patience: float | None = None
) -> bool:
    """Add amounts to the counters of a file; return whether the lock was free in time.

    Raises OSError, also for a missing folder. Counters of a damaged file start at 0 again.
    `patience` is in seconds; None stands for PATIENCE_S.
    """
    opened = posix.open(folder, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    try:
        deadline = time.monotonic() + (PATIENCE_S if patience is None else patience)
        while not _lock(opened):
            if time.monotonic() >= deadline:
                return False
            time.sleep(STEP_S)
        counts = _read(opened, name)
        for key, amount in amounts.items():
            counts[key] = counts.get(key, 0.0) + amount
        _replace(opened, name, "".join(_line(key, value) for key, value in counts.items()))
    finally:
        posix.close(opened)
    return True


def try_add(
    folder: str, name: str, amounts: Mapping[str, float], *, patience: float | None = None
) -> str | None:
    """Add as `add` does, but never raise; return the reason if nothing was counted, else None."""
    try:
        done = add(folder, name, amounts, patience=patience)
    except (OSError, MemoryError) as problem:
        return str(problem)
    return None if done else "the lock is held"


def parse(text: str | bytes) -> dict[str, float]:
    """Parse a file of counters. Raises ValueError for a damaged file."""
    lines = (text if isinstance(text, str) else text.decode("ascii")).split("\n")
    # The last line ends in a line feed, or the file was truncated.
    if len(lines) < 2 or lines.pop():
        raise ValueError("not a file of counters")
    counts = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        count = float(value)
        if not name or not 0 <= count < MOST:
            raise ValueError("not a file of counters")
        counts[name] = count
    return counts


def at_most(seconds: float, bounds: tuple[float, ...], prefix: str = "") -> dict[str, float]:
    """Return the increments of a histogram's counters for a duration, without its total count."""
    amounts = {f"{prefix}seconds": max(0.0, seconds)}
    for bound in bounds:
        if seconds <= bound:
            amounts[f"{prefix}at most {bound:g} s"] = 1.0
            break
    return amounts


def buckets(
    counts: Mapping[str, float], bounds: tuple[float, ...], prefix: str = ""
) -> tuple[tuple[float, float], ...]:
    """Return the cumulative buckets of a histogram: each bound with the number of durations."""
    total = 0.0
    cumulative = []
    for bound in bounds:
        total += counts.get(f"{prefix}at most {bound:g} s", 0.0)
        cumulative.append((bound, total))
    return tuple(cumulative)


def _line(name: str, value: float) -> str:
    return f"{name} {int(value) if value == int(value) else repr(float(value))}\n"


def _lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(folder: int, name: str) -> dict[str, float]:
    flags = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC
    try:
        descriptor = posix.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return {}
    try:
        return parse(posix.read(descriptor, MAX_BYTES))
    except ValueError:
        return {}
    finally:
        posix.close(descriptor)


def _replace(folder: int, name: str, text: str) -> None:
    """Replace a file as `files.replace_at` does, which imports too much for a key lookup."""
    temporary = f".{name}.new"
    try:  # noqa: SIM105  (contextlib is slow to import)
        posix.unlink(temporary, dir_fd=folder)
    except FileNotFoundError:
        pass
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
    descriptor = posix.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        data = text.encode("ascii")
        if posix.write(descriptor, data) != len(data):
            raise OSError("counters: no space left")
        # Every user of the host may read counts.
        posix.fchmod(descriptor, 0o644)
    finally:
        posix.close(descriptor)
    posix.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

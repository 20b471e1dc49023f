"""The start of an SSH session, which a change of the release delays for a moment.

A session reads the release, the hgrc and the extensions that the hgrc names. A deploy changes them
together (`ansible/roles/release/files/switch.py`) while it has the two locks of a folder:

| file | a session has it shared | a deploy has it exclusively |
| --- | --- | --- |
| gate | for an instant, before anything else | first: sessions that begin now wait |
| starting | until its repository is open | then: sessions that began before have read everything |

Both are locks of the kernel (flock), so a deploy that is killed holds no session back.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from typing import Final

FOLDER: Final = "/run/hgfleet-sessions"
CURRENT: Final = "/opt/hgfleet/current"

PATIENCE_SECONDS: Final = 30.0
"""A session that is held for longer starts nevertheless."""

STEP_SECONDS: Final = 0.02

TICK_NANOSECONDS: Final = 1_000_000_000
"""More than a tick of any kernel, and little compared with the life of a session."""

_descriptors: list[int] = []


class _Start:
    """When this process began; a session decides about rights after that."""

    nanoseconds = time.time_ns()


_start = _Start()


def is_since(nanoseconds: int) -> bool:
    """Return whether a time of a file (by the system's clock) is of this session, or just before.

    Times of files may lie a tick of the kernel behind the clock.
    """
    return nanoseconds >= _start.nanoseconds - TICK_NANOSECONDS


def begin(folder: str = FOLDER) -> None:
    """Wait until the release may be read, and keep it until `done` or the process's end.

    A host without the folder never holds a session back.
    """
    done()
    _start.nanoseconds = time.time_ns()
    try:
        gate = os.open(f"{folder}/gate", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _share(gate, time.monotonic() + PATIENCE_SECONDS)
        starting = os.open(f"{folder}/starting", os.O_RDONLY | os.O_CLOEXEC)
        _descriptors.append(starting)
        _share(starting, time.monotonic() + PATIENCE_SECONDS)
    except OSError:
        return
    finally:
        os.close(gate)


def is_of_another_release(prefix: str = sys.prefix, current: str = CURRENT) -> bool:
    """Return whether this process runs from another release than the current release.

    The release changed while the process started or waited. A program outside of any release
    (a test) belongs to none, so the answer is no.
    """
    own = os.path.realpath(prefix)
    releases = os.path.dirname(own)  # noqa: PTH120  (pathlib is slow to import)
    now = os.path.realpath(current)
    return now != own and os.path.dirname(now) == releases  # noqa: PTH120


def done() -> None:
    """Let a change of the release begin: this process has read everything it needs."""
    while _descriptors:
        os.close(_descriptors.pop())


def _share(descriptor: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return
            time.sleep(STEP_SECONDS)
        else:
            return

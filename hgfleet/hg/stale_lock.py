"""Locks of hg from an earlier boot, which core never breaks. Pure but for `started`.

Core writes "HOST/NAMESPACE:PID", and breaks a lock of its own PID namespace whose process is gone.
A container gets another namespace at each start, so a lock from before the start always looks like
a lock of another machine.
"""

from __future__ import annotations

import functools
import os

SYSTEMD = "/run/systemd/notify"
"""Socket that systemd makes when it starts, and keeps."""

MARGIN_SECONDS = 2.0
"""The kernel tells the start of a process in hundredths, and of the machine in whole seconds."""


def is_of_earlier_boot(locker: bytes, own: bytes, locked_at: float, started_at: float) -> bool:
    """Whether a lock is of this host, but from before the host's first process started.

    `own` is "HOST/NAMESPACE" of this process; times are in seconds since 1970. Core decides about a
    lock of the same namespace.
    """
    host, separator, namespace = locker.rpartition(b":")[0].partition(b"/")
    own_host, own_separator, own_namespace = own.partition(b"/")
    return (
        bool(separator and own_separator)
        and host == own_host
        and namespace != own_namespace
        and locked_at < started_at - MARGIN_SECONDS
    )


@functools.cache
def started() -> float:
    """Return the time when process 1 of this PID namespace started; 0 where that is not known.

    In the sandbox of a unit `/proc` has neither file; there, the time of systemd's socket is used.
    """
    try:
        with open("/proc/1/stat", "rb") as file:  # noqa: PTH123  (sessions import this)
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:  # noqa: PTH123
            boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        try:
            return os.stat(SYSTEMD).st_mtime  # noqa: PTH116
        except OSError:
            return 0.0
    return boot + ticks / os.sysconf("SC_CLK_TCK")

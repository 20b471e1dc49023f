"""A timer of the processor time of this process: at its end the kernel sends SIGPROF.

ITIMER_PROF counts the ticks of the clock that the process is found running at. A process that waits
often, for files or for a processor, took up to 40 % more than its budget. POSIX timers count the
processor time itself (timer_create(2), CLOCK_PROCESS_CPUTIME_ID); Python has no call for them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Final

_SIGEV_SIGNAL: Final = 0
_NANOSECONDS: Final = 1_000_000_000


class _Event(ctypes.Structure):
    """`struct sigevent`, which has 64 bytes on 64-bit Linux."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class CpuTimer:
    """A timer of the process that makes it; a fork does not have it."""

    def __init__(self) -> None:
        """Make the timer, which does not run; raises OSError."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Event(signo=signal.SIGPROF, notify=_SIGEV_SIGNAL)
        clock = ctypes.c_int(time.CLOCK_PROCESS_CPUTIME_ID)
        self._check(self._libc.timer_create(clock, ctypes.byref(event), ctypes.byref(self._timer)))

    def start(self, seconds: float) -> None:
        """Send SIGPROF after so much more processor time, in place of an earlier start."""
        whole, rest = divmod(max(1, round(seconds * _NANOSECONDS)), _NANOSECONDS)
        self._set(_Times(seconds=whole, nanoseconds=rest))

    def stop(self) -> None:
        """Send no signal."""
        self._set(_Times())

    def _set(self, times: _Times) -> None:
        self._check(self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None))

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

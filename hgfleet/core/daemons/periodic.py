"""Services that do the same work again and again (Type=notify-reload)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from hgfleet.core.daemons import systemd

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def due(begun: float, every: float, now: float) -> float:
    """Return the seconds until the next run, given the begin of the last run. Pure.

    A run that took longer than the interval is followed by the next run at once.
    """
    return max(0.0, begun + every - now)


def repeat(work: Callable[[], object], every: float) -> NoReturn:
    """Do the work now, every so many seconds, and whenever the unit is reloaded.

    `systemctl reload` returns when the work is done. Each run also resets the watchdog
    (WatchdogSec=). SIGHUP is blocked from here on, in children too, so a reload that arrives during
    a run leads to another run.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    systemd.notify("READY=1")
    wait = 0.0
    while True:
        is_reload = signal.sigtimedwait({signal.SIGHUP}, wait) is not None
        begun = time.monotonic()
        if is_reload:
            systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={begun * 1e6:.0f}")
        work()
        systemd.notify("READY=1\nWATCHDOG=1")
        wait = due(begun, every, time.monotonic())

"""Daemons of asyncio: how they end, and how they reset systemd's watchdog."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.daemons import systemd

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

WATCHDOG_SECONDS: Final = 10.0
"""Between resets; units that use `watchdog` have WatchdogSec=60."""


def run(main: Coroutine[Any, Any, None], log: Callable[..., None]) -> None:
    """Run a daemon until it ends or gets SIGTERM or SIGINT."""
    asyncio.run(until_stopped(main, log))


async def until_stopped(main: Coroutine[Any, Any, None], log: Callable[..., None]) -> None:
    """Run a daemon in a task that SIGTERM and SIGINT cancel, and log that it was stopped."""
    task = asyncio.ensure_future(main)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log("stopped")


async def watchdog() -> None:
    """Reset systemd's watchdog as long as the event loop runs, until cancelled."""
    while True:
        systemd.notify("WATCHDOG=1")
        await asyncio.sleep(WATCHDOG_SECONDS)

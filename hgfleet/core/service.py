"""Daemons of asyncio: their end, and the sign of life that systemd waits for."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import systemd

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

WATCHDOG_SECONDS: Final = 10.0
"""Between signs of life; units with `watchdog` have WatchdogSec=60."""


def run(main: Coroutine[Any, Any, None], say: Callable[..., None]) -> None:
    """Run a daemon until it ends or gets SIGTERM or SIGINT."""
    asyncio.run(until_stopped(main, say))


async def until_stopped(main: Coroutine[Any, Any, None], say: Callable[..., None]) -> None:
    """Run a daemon in a task, cancelled by SIGTERM and SIGINT, and tell that it was stopped."""
    task = asyncio.ensure_future(main)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        say("stopped")


async def watchdog() -> None:
    """Tell systemd again and again that the loop of events runs, until cancelled."""
    while True:
        systemd.notify("WATCHDOG=1")
        await asyncio.sleep(WATCHDOG_SECONDS)

"""Helpers for asyncio tasks: cancel them reliably, wait for an event or some time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

CANCELS: Final = 5


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks until they end: `asyncio.wait_for` of nats-py may lose a cancellation."""
    pending = set(tasks)
    for _try in range(CANCELS):
        for task in pending:
            task.cancel()
        _done, pending = await asyncio.wait(pending, timeout=1)
        if not pending:
            break


async def until(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most some seconds.

    Before Python 3.12, `asyncio.wait_for` loses a cancellation that comes with the event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()

"""Sessions that wait for the relay's answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.replication.primary.visibility import Answer

LOOK_SECONDS: Final = 0.25
"""Pause after which a waiting session checks for ended leases and the broker."""


class Waiting:
    """Sessions that wait; each checks again when it is notified of news."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def tell(self) -> None:
        """Notify every session, so that it checks again."""
        for event in self._events:
            event.set()

    async def answer(
        self, find: Callable[[float], Answer], is_final: Callable[[Answer], bool], wait: float
    ) -> Answer:
        """Return the first final answer, or the answer after `wait` seconds.

        `find` gets the seconds since the start.
        """
        began = time.monotonic()
        event = asyncio.Event()
        self._events.add(event)
        try:
            while True:
                event.clear()
                current = find(time.monotonic() - began)
                left = began + wait - time.monotonic()
                if left <= 0 or is_final(current):
                    return current
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), min(left, LOOK_SECONDS))
        finally:
            self._events.discard(event)

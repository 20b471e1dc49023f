"""Group sync: one sync of the disk for all workers of the relay that wait at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hgfleet.core import durable
from hgfleet.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.replication.protocol.settings import Settings


def syncing(settings: Settings) -> Callable[[], None] | None:
    """Return a function that syncs this host's repositories; it raises HostError.

    It is None if the host does without syncs. The disk is open from now on, so a program calls this
    before it writes, once in each of its processes (I/O).
    """
    if not durable.is_wanted_by(settings.hgrc):
        return None
    return durable.Kept(settings.repositories).confirm


class GroupSync:
    """Group commit: a caller returns after a sync that began after its call.

    `sync` runs in a thread; it is None on a host without syncs.
    """

    def __init__(self, sync: Callable[[], None] | None) -> None:
        self._sync = sync
        self._calls = self._covered = 0
        self._problem: HostError | None = None
        """Problem of the sync that covered the last calls."""
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the disk has all writes before the call; raises HostError as `sync` does."""
        if self._sync is None:
            return
        self._calls += 1
        call = self._calls
        async with self._lock:
            # The callers get the lock in their order.
            if self._covered < call:
                await self._cover(self._sync)
            if self._problem is not None:
                raise HostError(str(self._problem)) from self._problem

    async def _cover(self, sync: Callable[[], None]) -> None:
        """Sync for all calls until now, and keep the outcome.

        The kernel reports a loss only once, so an error also counts for calls during the sync.
        """
        calls = self._calls
        running = asyncio.ensure_future(asyncio.to_thread(sync))
        try:
            await asyncio.wait([running])
        finally:
            if not running.done():
                # If a caller is cancelled, the others still need the outcome.
                await asyncio.wait([running])
            try:
                running.result()
                self._covered, self._problem = calls, None
            except HostError as problem:
                self._covered, self._problem = self._calls, problem

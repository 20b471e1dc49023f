"""One sync of the disk for all workers of the relay that wait for one at the same time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from hgfleet.core import durable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.replication.settings import Settings


def syncing(settings: Settings) -> Callable[[], None] | None:
    """Return a function that syncs this host's repositories; it raises HostError.

    None where the host goes without (I/O).
    """
    if not durable.is_wanted_by(settings.hgrc):
        return None
    return partial(durable.confirm, settings.repositories)


class GroupSync:
    """Group commit: a caller returns after a sync that began after its call.

    `sync` runs in a thread; None is a host that goes without.
    """

    def __init__(self, sync: Callable[[], None] | None) -> None:
        self._sync = sync
        self._calls = self._covered = 0
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the disk has all writes before the call; raises as `sync` does."""
        if self._sync is None:
            return
        self._calls += 1
        call = self._calls
        async with self._lock:
            if self._covered >= call:
                return
            calls = self._calls
            await asyncio.to_thread(self._sync)
            self._covered = calls

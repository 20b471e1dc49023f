"""The disk of a repository whose records wait for its confirmation."""

from __future__ import annotations

import os
import weakref
from typing import Any

from hgfleet.core import durable


class Held:
    """The disk of a repository from the first transaction under a lock to the lock's release."""

    def __init__(self, repo: Any, lock: Any) -> None:
        self._disk = durable.Disk(os.fsdecode(repo.svfs.base))
        self._lock = weakref.ref(lock)
        self.has_record = False
        self.problem: OSError | None = None

    def is_of(self, lock: Any) -> bool:
        """Whether the disk was opened under this lock."""
        return self._lock() is lock

    def released(self, _success: bool) -> None:
        """Sync for all records that were committed under the lock, and close the disk."""
        with self._disk:
            try:
                if self.has_record:
                    self._disk.sync()
            except OSError as problem:
                self.problem = problem

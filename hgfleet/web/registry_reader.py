"""The registry, read again when one of its files has changed.

While the files make no sense, the last good registry stays in effect.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hgfleet.core.errors import RegistryError
from hgfleet.registry import user_repositories
from hgfleet.web.journal import report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.registry.model import Registry

    Stamp = tuple[int, ...]


class RegistryReader:
    """The effective registry of this host. Safe in threads."""

    def __init__(self, compiled: Path, dynamic: Path, changed: Callable[[Registry], None]) -> None:
        """`changed` is called with each new registry."""
        self._compiled = compiled
        self._dynamic = dynamic
        self._changed = changed
        self._registry: Registry | None = None
        self._stamp: Stamp | None = None
        self._lock = threading.Lock()

    def current(self) -> Registry | None:
        """The registry as its files are now, else the last good one; None if there was none."""
        stamp = _stamp(self._compiled)
        if not stamp:
            return self._registry
        stamp += _stamp(self._dynamic)
        if stamp != self._stamp:
            with self._lock:
                if stamp != self._stamp:
                    self._load(stamp)
        return self._registry

    def load(self) -> None:
        """Read the registry at the start, so that the journal tells why there is none."""
        if self.current() is None:
            self._load(None)

    def _load(self, stamp: Stamp | None) -> None:
        try:
            registry = user_repositories.load_effective(
                self._compiled, self._dynamic, lambda problem: report("registry", problem)
            )
        except RegistryError as problem:
            report("registry", str(problem))
        else:
            self._registry = registry
            self._changed(registry)
        self._stamp = stamp


def _stamp(file: Path) -> Stamp:
    """The part of a file's stat that changes with its content; empty for a missing file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

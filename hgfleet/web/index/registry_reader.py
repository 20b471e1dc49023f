"""The registry, read again when one of its files has changed.

While the files make no sense, the last good registry stays in effect.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic.effective import EffectiveRegistry, stamp_of
from hgfleet.web.http.journal import report
from hgfleet.web.index.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.registry.dynamic.effective import Stamp
    from hgfleet.registry.model.registry import Registry


class RegistryReader:
    """The effective registry of this host. Safe in threads."""

    def __init__(self, compiled: Path, dynamic: Path, changed: Callable[[Registry], None]) -> None:
        """`changed` is called with each new registry."""
        self._compiled = compiled
        self._dynamic = dynamic
        self._changed = changed
        self._effective = EffectiveRegistry(compiled, dynamic)
        self._registry: Registry | None = None
        self._catalogue: Catalogue | None = None
        self._stamp: Stamp | None = None
        self._lock = threading.Lock()

    def current(self) -> Registry | None:
        """The registry as its files are now, else the last good one; None if there was none."""
        stamp = stamp_of(self._compiled)
        if not stamp:
            return self._registry
        stamp += stamp_of(self._dynamic)
        if stamp != self._stamp:
            with self._lock:
                if stamp != self._stamp:
                    self._load(stamp)
        return self._registry

    def catalogue(self, registry: Registry) -> Catalogue:
        """The catalogue of a registry that `current` returned."""
        found = self._catalogue
        if found is None or found.registry is not registry:
            # Another thread has read a newer one meanwhile.
            found = Catalogue(registry, found)
        return found

    def load(self) -> None:
        """Read the registry at the start, so that the journal tells why there is none."""
        if self.current() is None:
            self._load(None)

    def _load(self, stamp: Stamp | None) -> None:
        try:
            registry = self._effective.read(lambda problem: report("registry", problem))
        except RegistryError as problem:
            report("registry", str(problem))
        else:
            # One change costs as much as it changed: both take over everything else.
            self._catalogue = Catalogue(registry, self._catalogue)
            self._registry = registry
            self._changed(registry)
        self._stamp = stamp

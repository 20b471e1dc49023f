"""The registry, read again when its files have changed.

While the files are invalid, the last valid registry stays in effect.
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
        """The registry as its files are now, else the last valid registry, or None."""
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
        catalogue = self._catalogue
        if catalogue is None or catalogue.registry is not registry:
            # Another thread has read a newer registry since.
            catalogue = Catalogue(registry, catalogue)
        return catalogue

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
            # The cost grows with the change only: both take over everything else.
            self._catalogue = Catalogue(registry, self._catalogue)
            self._registry = registry
            self._changed(registry)
        self._stamp = stamp

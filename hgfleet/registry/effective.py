"""Both parts of the registry as one, read again and again by a process that goes on.

A person who creates a repository changes one entry of thousands, and every web worker reads the
change: only the file that changed is read, and only the entries that changed are made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core.errors import RegistryError
from hgfleet.registry import user_repositories
from hgfleet.registry.compiled import load_compiled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.registry.model import Registry
    from hgfleet.registry.user_repositories import Dynamic

Stamp = tuple[int, ...]


class EffectiveRegistry:
    """The registry of two files. Not safe in threads: its user has a lock."""

    def __init__(self, compiled: Path, dynamic: Path) -> None:
        self._compiled = compiled
        self._path = dynamic
        self._static: tuple[Stamp, Registry] | None = None
        self._last: tuple[Registry, Dynamic, Registry] | None = None

    def read(self, complain: Callable[[str], None]) -> Registry:
        """Return the registry as `user_repositories.load_effective` does, with its errors."""
        static = self._read_static()
        try:
            dynamic = user_repositories.load(self._path)
        except RegistryError as error:
            complain(str(error))
            return static
        before = None
        if self._last is not None and self._last[0] is static:
            before = self._last[1], self._last[2]
        registry = user_repositories.merged(static, dynamic, before)
        self._last = static, dynamic, registry
        return registry

    def _read_static(self) -> Registry:
        stamp = stamp_of(self._compiled)
        if self._static is None or not stamp or self._static[0] != stamp:
            self._static = stamp, load_compiled(self._compiled)
        return self._static[1]


def stamp_of(file: Path) -> Stamp:
    """The part of a file's stat that changes with its content; empty for a missing file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

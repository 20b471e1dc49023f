"""Both parts of the registry as one, for a process that reads them again and again.

A person who creates a repository changes an entry among thousands, and every web worker reads the
change: only the changed file is read, and only the changed entries are made again.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model.compiled import load_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry

Stamp = tuple[int, ...]


class Parts(NamedTuple):
    """The registry, and the two parts that it is made of."""

    registry: Registry
    static: Registry
    dynamic: Dynamic


class EffectiveRegistry:
    """The registry of two files. Threads may read it at the same time, and then read it twice."""

    def __init__(self, compiled: Path, dynamic: Path) -> None:
        self._compiled = compiled
        self._path = dynamic
        self._static: tuple[Stamp, Registry] | None = None
        self._last: Parts | None = None
        self._current: tuple[tuple[Stamp, Stamp], Parts] | None = None

    def current(self, complain: Callable[[str], None]) -> Registry:
        """Return the registry as `read` does, which is called only if a file has changed.

        Both files are replaced by a rename. A file that is replaced during the read is read again.
        """
        return self._parts(complain).registry

    def required(self) -> Parts:
        """Return the parts that `current` uses, the same object until a file changes.

        Raises RegistryError if a part is missing or damaged.
        """
        return self._parts(_refuse)

    def _parts(self, complain: Callable[[str], None]) -> Parts:
        stamps, known = (stamp_of(self._compiled), stamp_of(self._path)), self._current
        if known is None or known[0] != stamps:
            known = self._current = stamps, self._read(complain)
        return known[1]

    def read(self, complain: Callable[[str], None]) -> Registry:
        """Return the registry as `user_repositories.load_effective` does, with its errors."""
        return self._read(complain).registry

    def _read(self, complain: Callable[[str], None]) -> Parts:
        static = self._read_static()
        try:
            dynamic = user_repositories.load(self._path)
        except RegistryError as error:
            complain(str(error))
            return Parts(static, static, user_repositories.NOTHING)
        last, before = self._last, None
        if last is not None and last.static is static:
            before = last.dynamic, last.registry
        registry = user_repositories.merged(static, dynamic, before)
        self._last = parts = Parts(registry, static, dynamic)
        return parts

    def _read_static(self) -> Registry:
        stamp, known = stamp_of(self._compiled), self._static
        if known is None or not stamp or known[0] != stamp:
            known = self._static = stamp, load_compiled(self._compiled)
        return known[1]


def _refuse(problem: str) -> None:
    raise RegistryError(problem)


@functools.cache
def of(compiled: str, dynamic: str) -> EffectiveRegistry:
    """Return the registry of two files, the same object for all requests of a process."""
    return EffectiveRegistry(Path(compiled), Path(dynamic))


def stamp_of(file: Path) -> Stamp:
    """The part of a file's stat that changes with its content; empty for a missing file."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

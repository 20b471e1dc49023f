"""Repositories in service on the primary: the present path of each identity, by the registry."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hgfleet.core import identity as identities
from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog.identities import of
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.effective import EffectiveRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hgfleet.registry.model.registry import Registry, Repository
    from hgfleet.replication.protocol.settings import Settings


class Served:
    """The registry of this host, read again when it changes. Safe in threads.

    An entry has no identity if an earlier release wrote it, or if the inventory declares it and the
    dynamic registry is damaged. Then the folder at its path names the identity.
    """

    def __init__(self, settings: Settings, complain: Callable[[str], None]) -> None:
        self._root, self._dynamic = settings.repositories, settings.dynamic
        self._complain = complain
        self._effective = EffectiveRegistry(settings.compiled, settings.dynamic)
        self._lock = threading.Lock()
        self._registry: Registry | None = None
        self._named: Mapping[str, str] = {}
        self._nameless: tuple[str, ...] = ()

    def registry(self) -> Registry:
        """Return the registry; raises RegistryError."""
        return self._read()[0]

    def paths(self) -> Mapping[str, str]:
        """Return the path of each repository in service, by identity; raises RegistryError."""
        _, named, nameless = self._read()
        if not nameless:
            return named
        # If a folder has the identity of another entry, the registry wins.
        unnamed = {self.identity(path): path for path in nameless}
        unnamed.pop("", None)
        return {**unnamed, **named}

    def path(self, identity: str) -> str | None:
        """Return the path of a repository; None if it is not in service; raises RegistryError."""
        _, named, nameless = self._read()
        current = named.get(identity)
        if current is None and nameless and identity:
            current = next((path for path in nameless if self.identity(path) == identity), None)
        return current

    def place(self, identity: str) -> str | None:
        """Return the path of a repository after a check of its folder; None if not in service.

        Raises RegistryError, and TemporaryError if the folder is another repository.
        """
        path = self.path(identity)
        if path is not None and (problem := self.problem(path)):
            raise TemporaryError(problem)
        return path

    def identity(self, path: str) -> str:
        """Return the identity of a repository in service; "" if it has none yet."""
        named = self.registry().repositories[path].identity
        return named or of(self._root / path)

    def entry(self, identity: str, former: str) -> Repository | None:
        """Return the entry of a repository in service; raises RegistryError.

        On a host whose registry names no identity yet, return the entry at its former path.
        """
        registry, named, _ = self._read()
        entry = registry.repositories.get(named.get(identity, former))
        return entry if entry is not None and entry.identity in ("", identity) else None

    def problem(self, path: str) -> str | None:
        """Return why the folder at a path is not the repository of its entry; None if it is."""
        entry = self.registry().repositories.get(path)
        if entry is None:
            return f"{path}: no repository in service has this path now"
        return identities.problem(self._root / path, entry.identity)

    def renamed(self) -> Mapping[str, str]:
        """Return the new paths of renamed repositories by former path; raises RegistryError."""
        return self.registry().renamed

    def purged(self) -> Collection[str]:
        """Return the identities of deleted repositories; raises RegistryError."""
        return user_repositories.load(self._dynamic).purged

    def _read(self) -> tuple[Registry, Mapping[str, str], tuple[str, ...]]:
        with self._lock:
            registry = self._effective.current(self._complain)
            if self._registry is not registry:
                self._named = registry.paths()
                self._nameless = tuple(
                    path for path, entry in registry.repositories.items() if not entry.identity
                )
                self._registry = registry
            return registry, self._named, self._nameless

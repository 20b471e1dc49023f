"""Paths of repositories on a mirror, by identity, from the mirror's own registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hgfleet.core.errors import UsageError
from hgfleet.pushlog import identities
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.effective import EffectiveRegistry
from hgfleet.replication.repositories.errors import MissingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from hgfleet.registry.dynamic.effective import Parts
    from hgfleet.registry.model.registry import Repository
    from hgfleet.replication.protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Known:
    """Content of the registry: repositories in service, and deleted repositories."""

    paths: Mapping[str, str] = field(default_factory=dict)
    declared: Set[str] = frozenset()
    """Paths of the inventory; no other document changes their readers."""
    purged: Set[str] = frozenset()

    def path(self, identity: str) -> str:
        """Return the path of a repository; raises MissingError."""
        path = self.paths.get(identity)
        if path is None:
            raise MissingError(
                "the registry of this mirror names no repository in service with the identity "
                f"{identity}; the primary's documents bring it"
            )
        return path


class RegistryPaths:
    """Both files of the registry, read again when either changes. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.repositories
        self._registry = EffectiveRegistry(settings.compiled, settings.dynamic)
        self._last: tuple[Parts, Known] | None = None

    def read(self) -> Known:
        """Return the present content; raises RegistryError."""
        parts, last = self._registry.required(), self._last
        if last is not None and last[0] is parts:
            return last[1]
        paths = parts.registry.paths()
        for path, repository in parts.registry.repositories.items():
            if not repository.identity:
                # A primary of the previous release names no identity; the push log here does.
                paths.setdefault(identities.of(self._root / path), path)
        declared, purged = parts.static.repositories, parts.dynamic.purged
        known = Known(paths, frozenset(declared), frozenset(purged))
        self._last = parts, known
        return known

    def entry(self, path: str) -> Repository:
        """Return the entry of a repository in service; raises RegistryError and MissingError."""
        entry = self._registry.required().registry.repositories.get(path)
        if entry is None:
            raise MissingError(f"{path}: no repository in service has this path on this mirror")
        return entry


def identity_at(settings: Settings, path: str) -> str:
    """Return the identity of the repository in service at a path; raises UsageError."""
    registry = user_repositories.load_effective(settings.compiled, settings.dynamic)
    entry = registry.repositories.get(path)
    if entry is None:
        raise UsageError(f"{path}: no repository in service has this path on this mirror")
    if not entry.identity:
        raise UsageError(
            f"{path}: the registry of this mirror does not name its identity yet; update the "
            "primary first, whose `hgfleet registry apply` gives it"
        )
    return entry.identity

"""Where repositories lie on a mirror, by the registry that lies there: identity to path."""

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
    """Content of the registry: repositories in service, and those that were deleted."""

    paths: Mapping[str, str] = field(default_factory=dict)
    declared: Set[str] = frozenset()
    """Paths of the inventory, whose readers no other document changes."""
    purged: Set[str] = frozenset()

    def path(self, identity: str) -> str:
        """Return the path of a repository; raises MissingError."""
        found = self.paths.get(identity)
        if found is None:
            raise MissingError(
                f"the registry of this mirror names no repository in service with the identity "
                f"{identity}; the primary's documents bring it"
            )
        return found


class RegistryPaths:
    """Both files of the registry, read when one of them changes. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.repositories
        self._registry = EffectiveRegistry(settings.compiled, settings.dynamic)
        self._last: tuple[Parts, Known] | None = None

    def read(self) -> Known:
        """Return the content of now; raises RegistryError."""
        parts, last = self._registry.required(), self._last
        if last is not None and last[0] is parts:
            return last[1]
        paths = parts.registry.paths()
        for path, repository in parts.registry.repositories.items():
            if not repository.identity:
                # A primary of the release before names none: the mirror's own push log does.
                paths.setdefault(identities.of(self._root / path), path)
        declared, purged = parts.static.repositories, parts.dynamic.purged
        known = Known(paths, frozenset(declared), frozenset(purged))
        self._last = parts, known
        return known

    def entry(self, path: str) -> Repository:
        """Return the entry of a repository in service; raises RegistryError and MissingError."""
        found = self._registry.required().registry.repositories.get(path)
        if found is None:
            raise MissingError(f"{path}: no repository in service has this path on this mirror")
        return found


def identity_at(settings: Settings, path: str) -> str:
    """Return the identity of the repository in service at a path; raises UsageError."""
    registry = user_repositories.load_effective(settings.compiled, settings.dynamic)
    found = registry.repositories.get(path)
    if found is None:
        raise UsageError(f"{path}: no repository in service has this path on this mirror")
    if not found.identity:
        raise UsageError(
            f"{path}: the registry of this mirror does not name its identity yet; update the "
            "primary first, whose `hgfleet registry apply` gives it"
        )
    return found.identity

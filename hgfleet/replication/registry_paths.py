"""Where repositories lie on a mirror, by the registry that lies there: identity to path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hgfleet.core.errors import UsageError
from hgfleet.registry import user_repositories
from hgfleet.registry.compiled import load_compiled
from hgfleet.registry.effective import Stamp, stamp_of
from hgfleet.replication import places
from hgfleet.replication.failures import MissingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from hgfleet.registry.model import Registry
    from hgfleet.registry.user_repositories import Dynamic
    from hgfleet.replication.settings import Settings


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
        self._files = settings.compiled, settings.dynamic
        self._last: tuple[tuple[Stamp, ...], Known, Dynamic, Registry] | None = None

    def read(self) -> Known:
        """Return the content of now; raises RegistryError."""
        stamps, last = tuple(stamp_of(file) for file in self._files), self._last
        if last is not None and last[0] == stamps:
            return last[1]
        compiled, file = self._files
        static, dynamic = load_compiled(compiled), user_repositories.load(file)
        # Entries that have not changed are not made again.
        earlier = last[2:] if last is not None and last[0][0] == stamps[0] else None
        registry = user_repositories.merged(static, dynamic, earlier)
        paths = registry.paths()
        for path, repository in registry.repositories.items():
            if not repository.identity:
                # A primary of the release before names none: the mirror's own push log does.
                paths.setdefault(places.identity_of(self._root / path), path)
        known = Known(paths, frozenset(static.repositories), frozenset(dynamic.purged))
        self._last = stamps, known, dynamic, registry
        return known


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

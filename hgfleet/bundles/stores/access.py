"""Access to repositories as the registry has it at this moment.

A run works for hours on the registry that it read at its beginning. During that time repositories
are deleted and made again, renamed, and change their readers. So the registry is asked again under
the lock of each repository, and before each upload and each publication.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from hgfleet.core import identity
from hgfleet.core.errors import TemporaryError
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.effective import EffectiveRegistry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.bundles.decide.manifest import Entry, Manifests
    from hgfleet.bundles.decide.settings import Config
    from hgfleet.registry.dynamic.effective import Parts
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry, Repository


class ChangedError(TemporaryError):
    """A repository is no longer as it was when the work for it began."""


def difference(planned: Repository, now: Repository | None) -> str:
    """Return why work for a repository must not go on, "" if it may. Pure."""
    if now is None or now.identity != planned.identity:
        return "it is no longer in service"
    if now.is_public != planned.is_public:
        return "it is public now" if now.is_public else "it is not public any more"
    if now.path != planned.path:
        return f"it is at {now.path} now"
    return ""


def is_publishable(entry: Entry, repository: Repository) -> bool:
    """Whether clients of a repository may have an entry. Pure."""
    is_own = bool(repository.identity) and entry.identity == repository.identity
    return is_own and entry.private != repository.is_public


def withdrawn(repository: Repository) -> Repository:
    """Return a repository that is out of service, without readers and bundles."""
    return replace(repository, description="", read=(), push=(), bundles=())


class Seen(NamedTuple):
    """The registry at a moment."""

    parts: Parts
    paths: Mapping[str, str]
    """The path of each repository in service, by its identity."""


class Access:
    """The registry, read again at each question if it has changed. Safe in threads."""

    def __init__(self, config: Config, manifests: Manifests) -> None:
        self._config, self._manifests = config, manifests
        self._registry = EffectiveRegistry(config.registry, config.dynamic)
        self._reading = threading.Lock()
        self._seen: Seen | None = None

    def read(self) -> tuple[Registry, Dynamic]:
        """Read the registry. Raises RegistryError, also where a part is damaged or lost."""
        parts = self._look().parts
        return parts.registry, parts.dynamic

    def _look(self) -> Seen:
        """Return the registry as it is at this moment; thousands of questions read it once.

        The mark of a dynamic part is with the manifests, which an empty registry would withdraw.
        """
        with self._reading:
            parts, seen = self._registry.required(), self._seen
            if seen is None or seen.parts is not parts:
                self._seen = seen = Seen(parts, parts.registry.paths())
        if not self._config.dynamic.exists() and self._manifests.had_user_repositories():
            raise user_repositories.lost(self._config.dynamic)
        return seen

    def purged(self) -> frozenset[str]:
        """Return the identities of repositories that were deleted for good."""
        seen = self._look()
        return frozenset(seen.parts.dynamic.purged).difference(seen.paths)

    def current(self, repository: Repository) -> Repository | None:
        """Return a repository as it is now, at any path; None if it is not in service."""
        if not repository.identity:
            return None
        seen = self._look()
        path = seen.paths.get(repository.identity)
        return seen.parts.registry.repositories.get(path) if path is not None else None

    def decide(self, repository: Repository) -> Repository:
        """Return a repository as it is now, withdrawn if it is not in service."""
        if not repository.identity:
            # The registry does not name it yet, or it is state of the release before.
            return repository
        return self.current(repository) or withdrawn(repository)

    def check(self, repository: Repository) -> None:
        """Raise ChangedError unless a repository is as it was when the work began, also on disk."""
        place = self._config.repositories / repository.path
        problem = difference(repository, self.current(repository))
        problem = problem or identity.problem(place, repository.identity) or ""
        if problem:
            raise ChangedError(f"{repository.path}: {problem}")

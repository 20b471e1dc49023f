"""Place of a repository for the processes of the web part: its path, identity and settings."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.registry.model import repository_hgrc

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository

MOST: Final = 4096
"""Places that are kept, the most recently used; making a place takes some 30 µs."""


class Place(NamedTuple):
    """An entry of the registry as far as opening its repository depends on it."""

    path: str
    identity: str
    settings: str
    """Of hg, as JSON: `.hg/hgrc` is not read."""

    @property
    def key(self) -> str:
        """A short text that differs for other settings."""
        return hashlib.sha256(self.settings.encode()).hexdigest()[:16]

    def configure(self, ui: Any) -> None:
        """Give a ui of hg the settings."""
        repository_hgrc.configure(ui, json.loads(self.settings))


@functools.lru_cache(MOST)
def place_of(repository: Repository) -> Place:
    """Return the place of an entry."""
    settings = json.dumps(repository_hgrc.settings(repository), sort_keys=True)
    return Place(repository.path, repository.identity, settings)

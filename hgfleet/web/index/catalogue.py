"""Catalogue: the repositories of a registry in the order of the index, made once per registry.

Each request takes a slice of it, so its cost does not grow with the number of repositories. The
catalogue of a changed registry takes over the entries of repositories that have not changed.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import names
from hgfleet.registry.model.permissions import may_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.core.principal import Principal
    from hgfleet.registry.model.registry import Namespace, Registry, Repository

MOST_PAGES: Final = 1_000_000
"""The largest number of a page that is parsed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A repository, with the longest declared namespace that it lies in, or ""."""

    namespace: str
    repository: Repository

    @property
    def order(self) -> tuple[str, str]:
        """The sort key in an index: by namespace, then by path."""
        return self.namespace, self.repository.path


@dataclass(frozen=True, slots=True)
class Page:
    """A slice of a list: the entries of page `number` of `count`, after `first` others."""

    entries: Sequence[Entry]
    first: int
    total: int
    number: int
    count: int


class Catalogue:
    """The entries of a registry. Immutable, so safe in threads."""

    def __init__(self, registry: Registry, before: Catalogue | None = None) -> None:
        """Take over the entries of unchanged repositories from the catalogue before."""
        self.registry: Registry = registry
        known: Mapping[str, Entry] = {}
        if before is not None and before.registry.namespaces == registry.namespaces:
            known = before.by_path
        self.by_path: dict[str, Entry] = {}
        for path, repository in registry.repositories.items():
            entry = known.get(path)
            if entry is None or entry.repository is not repository:
                entry = Entry(namespace_of(path, registry.namespaces), repository)
            self.by_path[path] = entry
        self._paths = sorted(self.by_path)
        # Sorting a sorted list is cheap: entries taken over come in their former order.
        former: list[Entry] = [] if before is None else before.entries
        kept = [entry for entry in former if self.by_path.get(entry.repository.path) is entry]
        same = {id(entry) for entry in kept}
        new = [entry for entry in self.by_path.values() if id(entry) not in same]
        self.entries: list[Entry] = sorted(kept + new, key=lambda entry: entry.order)
        self._public = [entry for entry in self.entries if entry.repository.is_public]

    def listed(self, folder: str, principal: Principal | None = None) -> Sequence[Entry]:
        """Return the entries of a folder ("" for all) that a person may read (None: anonymous)."""
        listed: Sequence[Entry] = self._public
        if principal is not None:
            listed = [entry for entry in self.entries if may_read(entry.repository, principal)]
        if folder:
            below = folder + "/"
            listed = [entry for entry in listed if entry.repository.path.startswith(below)]
        return listed

    def is_folder(self, folder: str, principal: Principal | None = None) -> bool:
        """Whether a repository that the person may read lies below the folder."""
        below = folder + "/"
        for index in range(bisect.bisect_left(self._paths, below), len(self._paths)):
            path = self._paths[index]
            if not path.startswith(below):
                return False
            if may_read(self.by_path[path].repository, principal):
                return True
        return False


def namespace_of(path: str, namespaces: Mapping[str, Namespace]) -> str:
    """The longest declared namespace that the path lies in, or ""."""
    return next((above for above in names.parents(path) if above in namespaces), "")


def page_of(entries: Sequence[Entry], size: int, number: int) -> Page | None:
    """Return a page, counted from 1, or None if there is no such page; the first always exists."""
    count = max(1, -(-len(entries) // size))
    if not 1 <= number <= count:
        return None
    first = (number - 1) * size
    return Page(entries[first : first + size], first, len(entries), number, count)


def page_number(text: str | None) -> int:
    """Return the page number in a query: 1 if it has none, 0 for any other text."""
    if text is None:
        return 1
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_PAGES))
    return int(text) if is_number else 0

"""The contents of a repository as its users see them, to compare the old store with the new one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from mercurial import bookmarks, obsolete


@dataclass(frozen=True, slots=True)
class Contents:
    """Counts and digests; equal contents mean that nothing was lost."""

    changesets: int
    tip: str
    nodes: str
    phases: str
    bookmarks: tuple[tuple[str, str], ...]
    visible: int
    markers: int

    def without_bookmarks(self) -> Contents:
        """Return the contents of the store alone: bookmarks are outside of it."""
        return replace(self, bookmarks=())


def contents(repository: Any) -> Contents:
    """Read the contents; 100,000 changesets take some tenths of a second."""
    whole = repository.unfiltered()
    changelog = whole.changelog
    nodes, phases = hashlib.sha256(), hashlib.sha256()
    cache = whole._phasecache  # noqa: SLF001  (all else in core is slower)
    for number in changelog:
        nodes.update(changelog.node(number))
        phases.update(b"%d" % cache.phase(whole, number))
    marks = bookmarks.bmstore(whole)
    return Contents(
        len(changelog),
        changelog.tip().hex(),
        nodes.hexdigest(),
        phases.hexdigest(),
        tuple(sorted((name.decode("latin-1"), node.hex()) for name, node in marks.items())),
        len(whole.filtered(b"visible")),
        len(obsolete.makestore(whole.ui, whole)),
    )

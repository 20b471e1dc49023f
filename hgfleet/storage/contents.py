"""The contents of a repository as its users see them, to compare the old with the new store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mercurial import bookmarks, obsolete, repoview

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Contents:
    """Counts and digests; equal contents mean that nothing was lost.

    `visible` and `served` are digests of the changesets that these views of core leave out.
    """

    changesets: int
    tip: str
    nodes: str
    phases: str
    bookmarks: tuple[tuple[str, str], ...]
    visible: str
    served: str
    markers: str

    def without_bookmarks(self) -> Contents:
        """Return the contents without bookmarks, which are outside of the store."""
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
        _digest(_nodes(whole, b"visible")),
        _digest(_nodes(whole, b"served")),
        _digest(sorted(repr(marker).encode() for marker in obsolete.makestore(whole.ui, whole))),
    )


def _nodes(whole: Any, view: bytes) -> list[bytes]:
    """Return the changesets that a view leaves out: hidden, or not served to clients."""
    node = whole.changelog.node
    return [node(number) for number in sorted(repoview.filterrevs(whole, view))]


def _digest(parts: Iterable[bytes]) -> str:
    """Hash byte strings, each with its length."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(b"%d:" % len(part) + part)
    return hashed.hexdigest()

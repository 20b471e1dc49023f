"""The weight of an answer: the stored size of its part of a repository."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_FILES: Final = 2000
"""Histories of files that are read, some 0.1 ms each; an answer with more files is large."""

_STORED: Final = operator.attrgetter("_revlog")
"""The revlog below a filelog; core 7.2 has no public way to a stored size without reading."""


def files_weigh_more(repo: Any, missing: Sequence[int], most: int) -> bool:
    """Whether these changesets' revisions of files have more stored bytes than `most`.

    `missing` has revisions of the changelog. The search ends as soon as the answer is known.
    """
    wanted, first = frozenset(missing), min(missing)
    seen: set[bytes] = set()
    total = 0
    for rev in missing:
        for path in repo.changelog.changelogrevision(rev).files:
            if path in seen:
                continue
            seen.add(path)
            if len(seen) > MOST_FILES:
                return True
            total += _added(_STORED(repo.file(path)), wanted, first)
            if total > most:
                return True
    return False


def _added(store: Any, wanted: frozenset[int], first: int) -> int:
    """Return the stored bytes of a file's revisions that belong to wanted changesets."""
    size = 0
    for rev in range(len(store) - 1, -1, -1):
        changeset = store.linkrev(rev)
        if changeset in wanted:
            size += store.length(rev)
        elif changeset < first:
            break
    return size

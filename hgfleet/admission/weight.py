"""The weight of the part of a repository that an answer has."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_FILES: Final = 2000
"""Histories of files that are looked at, some 0.1 ms each; an answer with more is a large one."""

_STORED: Final = operator.attrgetter("_revlog")
"""The revlog below a filelog; core 7.2 has no public way to a stored size without reading."""


def files_weigh_more(repo: Any, missing: Sequence[int], most: int) -> bool:
    """Whether the revisions of files that belong to these changesets have more stored bytes.

    `missing` has revisions of the changelog. The look ends at the first answer.
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
    """Return the stored bytes of a file's revisions that are of wanted changesets."""
    found = 0
    for rev in range(len(store) - 1, -1, -1):
        changeset = store.linkrev(rev)
        if changeset in wanted:
            found += store.length(rev)
        elif changeset < first:
            break
    return found

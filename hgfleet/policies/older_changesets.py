"""Older changesets that a transaction publishes, shows or hides.

A phase, an obsolescence marker and a bookmark change which changesets are served, and so does a new
changeset: a hidden changeset is shown as soon as it has a child that is not obsolete.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from mercurial import obsolete

from hgfleet.policies.before import hidden

if TYPE_CHECKING:
    from collections.abc import Collection


class Moves:
    """Revisions of an unfiltered repository that a transaction of Mercurial 7.2 moves."""

    def __init__(self, repo: Any, transaction: Any, before: Collection[int]) -> None:
        """Take the revisions that were hidden when the transaction began."""
        self._repo = repo
        self._log = repo.changelog
        self._transaction = transaction
        self._before = before
        self._first = transaction.changes[b"origrepolen"]

    @functools.cached_property
    def all(self) -> frozenset[int]:
        """Changesets that change their phase, become obsolete, are shown or vanish.

        An obsolete changeset vanishes when the last changeset that needs it is rebased. The person
        who rebases does not change the obsolete changeset, so it does not count here.
        """
        return self.lowered | self.gone | self.appeared | (self.vanished - self.obsolete)

    @functools.cached_property
    def lowered(self) -> frozenset[int]:
        """Changesets that become public, or secret changesets that become drafts."""
        return frozenset(
            rev
            for revs, (old, new) in self._transaction.changes[b"phases"]
            for rev in revs
            if rev < self._first and old is not None and new < old
        )

    @functools.cached_property
    def gone(self) -> frozenset[int]:
        """Changesets that the markers of this transaction make obsolete."""
        markers = self._transaction.changes[b"obsmarkers"]
        if not markers:
            return frozenset()
        named = {self._log.rev(m[0]) for m in markers if self._log.hasnode(m[0])}
        return frozenset(rev for rev in named & self.obsolete if rev < self._first)

    @functools.cached_property
    def appeared(self) -> frozenset[int]:
        """Changesets that are served now and were not served before."""
        return frozenset(rev for rev in self._before if rev not in self.hidden)

    @functools.cached_property
    def vanished(self) -> frozenset[int]:
        """Changesets that were served before and are not served now."""
        return frozenset(
            rev for rev in self.hidden if rev < self._first and rev not in self._before
        )

    @functools.cached_property
    def obsolete(self) -> frozenset[int]:
        """All changesets that are obsolete now, including newly obsolete changesets."""
        return frozenset(obsolete.getrevs(self._repo, b"obsolete"))

    @functools.cached_property
    def hidden(self) -> Collection[int]:
        """All changesets that are not served now, including newly hidden changesets."""
        return hidden(self._repo)

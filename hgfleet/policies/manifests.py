"""Manifests of changesets and their differences, for the policies of a push.

The cost follows the size of the differences. Few manifests are read as a whole, and they stay in
memory for the next policy.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from mercurial import mdiff
from mercurial.node import nullrev

from hgfleet.policies import manifest_diff
from hgfleet.policies.manifest_diff import Difference

_TEXTS: Final = 4
"""Manifests in memory, for a few branches that alternate. A manifest of 100,000 files has 8 MB."""

_LINES: Final = 500_000
"""Lines of differences that are kept for the next policy; about 100 MB."""


class Manifests:
    """The manifests of an unfiltered repository."""

    def __init__(self, repo: Any) -> None:
        self._log = repo.changelog
        self._manifests = repo.manifestlog.getstorage(b"")
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        self._differences: dict[tuple[int, int], Difference] = {}
        self._lines = 0

    def revision_of(self, rev: int) -> int:
        """Return the revision of the manifest of a revision of the changelog."""
        if rev == nullrev:
            return int(nullrev)
        return int(self._manifests.rev(self._log.changelogrevision(rev).manifest))

    def difference(self, parent: int, rev: int) -> Difference:
        """Return the lines that differ between the manifests of two changesets."""
        key = (parent, rev)
        if key not in self._differences:
            before, after = self.revision_of(parent), self.revision_of(rev)
            made = self._compare(before, after)
            self._lines += len(made.before) + len(made.after)
            if self._lines > _LINES:
                self._differences.clear()
                self._lines = len(made.before) + len(made.after)
            self._differences[key] = made
        return self._differences[key]

    def _compare(self, before: int, after: int) -> Difference:
        if before == after:
            return Difference({}, {})
        old = self.text(before)
        delta = self._manifests.revdiff(before, after)
        if after not in self._texts:
            # Cheaper than having hg rebuild the text from its last full copy and compute its hash.
            # No client can check out a text with a wrong hash.
            self._keep(after, bytes(mdiff.patch(old, delta)) if delta else old)
        return manifest_diff.difference(old, self.text(after), delta)

    def text(self, rev: int) -> bytes:
        """Return a revision of the manifest."""
        if rev == nullrev:
            return b""
        if rev in self._texts:
            self._texts.move_to_end(rev)
        else:
            self._keep(rev, bytes(self._manifests.revision(self._manifests.node(rev))))
        return self._texts[rev]

    def _keep(self, rev: int, text: bytes) -> None:
        self._texts[rev] = text
        while len(self._texts) > _TEXTS:
            self._texts.popitem(last=False)

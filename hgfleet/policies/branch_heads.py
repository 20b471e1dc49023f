"""Heads of branches before and after a transaction: the new heads that replace a former head.

A named branch can be started again anywhere in the history (`hg branch --force`), and a head can
be closed. Together, the two steps replace the content of a branch by a changeset whose parents do
not have that content. The name of a branch gives its newest open head. So a branch with several
heads goes back to another head when the newest head is closed or becomes obsolete, or when the
other head gets a child.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mercurial import encoding
from mercurial.node import nullrev

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a branch: its open, visible heads, or its closed heads if no head is open."""

    nodes: tuple[bytes, ...]
    """From the oldest to the newest; the branch's name gives the newest."""
    are_open: bool


def heads_by_branch(repo: Any) -> dict[bytes, Heads]:
    """Return the heads of each branch of a repository.

    Core keeps them in a cache in the repository, and updates that cache for new changesets.
    """
    branches = repo.filtered(b"served").branchmap()
    result = {}
    for name in branches:
        heads = tuple(branches.branchheads(name))
        closed = heads or tuple(branches.branchheads(name, closed=True))
        result[bytes(name)] = Heads(heads or closed, are_open=bool(heads))
    return result


def open_heads(repo: Any, branch: str) -> Sequence[bytes]:
    """Return the open, visible heads of a branch as it is now."""
    branches = repo.filtered(b"served").branchmap()
    name = encoding.strtolocal(branch)
    return list(branches.branchheads(name)) if branches.hasbranch(name) else []


class BranchHeads:
    """The heads of branches when a transaction began, compared with those before it closes."""

    def __init__(self, repo: Any, before: Mapping[bytes, Heads], obsolete: Collection[int]) -> None:
        """Take an unfiltered repository and the revisions that are obsolete now."""
        self._repo = repo
        self._log = repo.changelog
        self._before = before
        self._obsolete = obsolete

    def before(self, branch: str) -> Heads:
        """Return the heads of a branch when the transaction began; none of a new branch."""
        return self._before.get(encoding.strtolocal(branch), Heads((), are_open=False))

    def strays(self, branch: str) -> Iterator[int]:
        """Yield the new open heads that descend from no former open head.

        The nearest ancestors that are left stand for a former head that is obsolete now.
        """
        before = self.before(branch)
        if before.are_open:
            left = {rev for node in before.nodes for rev in self._left_of(self._log.rev(node))}
            yield from (rev for rev in self._new(branch) if self._is_apart(rev, left))

    def abandoned(self, branch: str) -> tuple[int, int] | None:
        """Return the former and current newest head, if no open head continues the former.

        None if an open head continues it, or if the branch has no open head any more.
        """
        before = self.before(branch)
        heads = [self._log.rev(node) for node in open_heads(self._repo, branch)]
        if not before.are_open or not heads:
            return None
        former = self._log.rev(before.nodes[-1])
        left = list(self._left_of(former))
        if self._go_on_from(left, heads):
            return None
        return (former, heads[-1]) if left else None

    def given(self) -> Iterator[tuple[str, int, int | None]]:
        """Yield the branches whose names give another changeset, with the former and new one."""
        after = heads_by_branch(self._repo)
        for name, heads in self._before.items():
            current = after.get(name)
            if heads == current:
                continue
            former = self._log.rev(heads.nodes[-1])
            now = self._log.rev(current.nodes[-1]) if current else None
            if former != now:
                yield encoding.fromlocal(name).decode("utf-8", "replace"), former, now

    def replacing(self, branch: str) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the new open heads that descend from no former head, and the former heads.

        A changeset that is a head again, because its descendant is gone, replaces only that
        descendant.
        """
        former = [self._log.rev(node) for node in self.before(branch).nodes]
        for rev in self._new(branch):
            if self._is_apart(rev, former):
                later = [head for head in former if self._log.isancestorrev(rev, head)]
                yield rev, later or former

    def _new(self, branch: str) -> Iterator[int]:
        known = set(self.before(branch).nodes)
        if known:
            heads = open_heads(self._repo, branch)
            yield from (self._log.rev(node) for node in heads if node not in known)

    def _left_of(self, head: int) -> Iterator[int]:
        branch = self._log.branchinfo(head)[0]
        waiting = [head]
        while waiting:
            rev = waiting.pop()
            if rev not in self._obsolete:
                yield rev
                continue
            waiting += [
                parent
                for parent in self._log.parentrevs(rev)
                if parent != nullrev and self._log.branchinfo(parent)[0] == branch
            ]

    def _is_apart(self, rev: int, heads: Iterable[int]) -> bool:
        return not self._go_on_from(list(heads), [rev])

    def _go_on_from(self, former: list[int], heads: list[int]) -> bool:
        """Whether any head is a former head or descends from a former head.

        All heads are checked in a single walk: a walk for each of 2,000 heads takes seconds.
        """
        if not former:
            return False
        return bool(self._log.reachableroots(min(former), heads, former))

"""Facts of a push that Mercurial's transaction has, read from one that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hgfleet.core.principal import Principal
from hgfleet.policies.push_facts import RepositoryPush

OLD, NEW, UNKNOWN = b"o" * 20, b"n" * 20, b"u" * 20
REVISIONS = {OLD: 3, NEW: 5}
FIRST = 5
"""The first revision that the push adds."""


class Log:
    """A changelog with two changesets."""

    def hasnode(self, node: bytes) -> bool:
        return node in REVISIONS

    def rev(self, node: bytes) -> int:
        return REVISIONS[node]

    def branchinfo(self, rev: int) -> tuple[bytes, bool]:
        return b"old" if rev == 3 else b"new", False


def push(**changes: Any) -> RepositoryPush:
    repo = SimpleNamespace(
        changelog=Log(), manifestlog=SimpleNamespace(getstorage=lambda _tree: None)
    )
    repo.unfiltered = lambda: repo
    changes = {"origrepolen": FIRST, "bookmarks": {}, "obsmarkers": set(), **changes}
    encoded = {name.encode(): value for name, value in changes.items()}
    transaction = SimpleNamespace(changes=encoded, hookargs={})
    return RepositoryPush(repo, transaction, Principal("bob", frozenset()))


@pytest.mark.parametrize(
    ("before", "after", "branches", "is_deleted"),
    [
        (None, NEW, ("new",), False),
        (OLD, NEW, ("old", "new"), False),
        (OLD, None, ("old",), True),
        # A bookmark of a changeset that is not here.
        (UNKNOWN, NEW, ("new",), False),
    ],
)
def test_a_bookmark_has_the_branches_that_it_left_and_came_to(
    before: bytes | None, after: bytes | None, branches: tuple[str, ...], is_deleted: bool
) -> None:
    (found,) = push(bookmarks={b"x": (before, after)}).bookmarks
    assert (found.name, found.stored) == ("x", b"x")
    assert (found.branches, found.is_deleted) == (branches, is_deleted)


@pytest.mark.parametrize(
    ("marked", "obsolete", "gone"),
    [
        ([], {3}, set()),
        # A changeset that the push itself brings is no older one.
        ([OLD, NEW], {3, 5}, {3}),
        # Marked, and still visible: the marker is of another one as well.
        ([OLD], set(), set()),
        ([UNKNOWN], {3}, set()),
    ],
)
def test_older_changesets_that_become_obsolete_are_gone(
    monkeypatch: pytest.MonkeyPatch, marked: list[bytes], obsolete: set[int], gone: set[int]
) -> None:
    monkeypatch.setattr(RepositoryPush, "_obsolete", frozenset(obsolete))
    assert push(obsmarkers={(node, ()) for node in marked})._gone == gone

"""Facts of a push that Mercurial's transaction has, read from a transaction that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.principal import Principal
from hgfleet.policies.before import Before
from hgfleet.policies.older_changesets import Moves
from hgfleet.policies.push_facts import RepositoryPush

if TYPE_CHECKING:
    from collections.abc import Collection

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


def made(**changes: Any) -> tuple[Any, Any]:
    repo = SimpleNamespace(
        changelog=Log(), manifestlog=SimpleNamespace(getstorage=lambda _tree: None)
    )
    repo.unfiltered = lambda: repo
    nothing: dict[str, Any] = {"bookmarks": {}, "obsmarkers": set(), "phases": []}
    changes = {"origrepolen": FIRST, **nothing, **changes}
    encoded = {name.encode(): value for name, value in changes.items()}
    return repo, SimpleNamespace(changes=encoded, hookargs={})


def push(**changes: Any) -> RepositoryPush:
    return RepositoryPush(*made(**changes), Principal("bob", frozenset()), Before(frozenset()))


def moves(hidden: Collection[int] = frozenset(), **changes: Any) -> Moves:
    return Moves(*made(**changes), hidden)


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
    (bookmark,) = push(bookmarks={b"x": (before, after)}).bookmarks
    assert (bookmark.name, bookmark.stored) == ("x", b"x")
    assert (bookmark.branches, bookmark.is_deleted) == (branches, is_deleted)
    assert bookmark.is_new == (before is None)


@pytest.mark.parametrize(
    ("marked", "obsolete", "gone"),
    [
        ([], {3}, set()),
        # A changeset that the push itself brings is no older changeset.
        ([OLD, NEW], {3, 5}, {3}),
        # Marked, and still visible: the marker is of another changeset as well.
        ([OLD], set(), set()),
        ([UNKNOWN], {3}, set()),
    ],
)
def test_older_changesets_that_become_obsolete_are_gone(
    monkeypatch: pytest.MonkeyPatch, marked: list[bytes], obsolete: set[int], gone: set[int]
) -> None:
    monkeypatch.setattr(Moves, "obsolete", frozenset(obsolete))
    assert moves(obsmarkers={(node, ()) for node in marked}).gone == gone


@pytest.mark.parametrize(
    ("before", "now", "appeared", "vanished"),
    [
        ({1}, {1}, set(), set()),
        ({1, 2}, {2}, {1}, set()),
        # A changeset that the push itself brings is no older changeset.
        ({1}, {1, 2, FIRST}, set(), {2}),
    ],
)
def test_what_is_shown_and_hidden_is_compared_with_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
    before: set[int],
    now: set[int],
    appeared: set[int],
    vanished: set[int],
) -> None:
    monkeypatch.setattr(Moves, "hidden", frozenset(now))
    monkeypatch.setattr(Moves, "obsolete", frozenset())
    moved = moves(hidden=before)
    assert moved.appeared == appeared
    assert moved.vanished == vanished
    assert moved.all == appeared | vanished
    # A rebase of its last descendant hides an obsolete changeset, and is no move of it.
    monkeypatch.setattr(Moves, "obsolete", frozenset(vanished))
    assert moves(hidden=before).all == appeared


def test_of_phases_those_count_that_are_lowered_of_older_changesets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Moves, "hidden", frozenset())
    public, draft, secret = 0, 1, 2
    changed = [
        ([1], (draft, public)),
        ([2], (secret, draft)),
        ([3], (draft, secret)),
        ([4], (None, public)),
        ([FIRST], (draft, public)),
    ]
    assert moves(phases=changed).lowered == {1, 2}

"""Untrue lists of files are told from the manifests and from the revisions of the files."""

from __future__ import annotations

import pytest

from hgfleet.policies.file_lists import ELSEWHERE, OMITTED, UNKNOWN, untrue
from hgfleet.policies.manifest_diff import Difference

A, B, C = (letter * 40 for letter in (b"a", b"b", b"c"))
KNOWN = {b"x", b"y"}
"""Files of the store."""


def untrue_paths(
    listed: list[bytes], *differences: Difference, elsewhere: tuple[bytes, ...] = ()
) -> list[tuple[str, bytes]]:
    return list(
        untrue(
            listed,
            differences,
            KNOWN.__contains__,
            lambda path, _node: ELSEWHERE if path in elsewhere else None,
        )
    )


CHANGED = Difference({b"x": A}, {b"x": B})
REMOVED = Difference({b"x": A}, {})


def test_a_list_of_what_changed_is_true() -> None:
    assert untrue_paths([b"x"], CHANGED) == []
    assert untrue_paths([b"x"], REMOVED) == []
    assert untrue_paths([], Difference({}, {})) == []


def test_a_listed_file_is_one_of_the_store() -> None:
    # Merges of former clients list files that they did not change.
    assert untrue_paths([b"x", b"y"], CHANGED) == []
    assert untrue_paths([b"x", b"ghost"], CHANGED) == [(UNKNOWN, b"ghost")]


def test_a_new_revision_is_listed() -> None:
    assert untrue_paths([], CHANGED) == [(OMITTED, b"x")]
    assert untrue_paths([b"y"], Difference({}, {b"x": A})) == [(OMITTED, b"x")]
    # A changeset that removes a file brings no revision.
    assert untrue_paths([], REMOVED) == []


@pytest.mark.parametrize("flag", [b"x", b"l"])
def test_another_flag_of_the_same_revision_need_not_be_listed(flag: bytes) -> None:
    assert untrue_paths([], Difference({b"x": A}, {b"x": A + flag})) == []
    first, second = Difference({b"x": B}, {b"x": A + flag}), Difference({b"x": A}, {b"x": A + flag})
    assert untrue_paths([], first, second) == []


def test_a_merge_lists_what_differs_from_both_parents() -> None:
    same = Difference({}, {})
    assert untrue_paths([], CHANGED, same) == []
    assert untrue_paths([], CHANGED, Difference({b"x": C}, {b"x": B})) == [(OMITTED, b"x")]


def test_a_revision_belongs_to_a_changeset_that_has_it() -> None:
    assert untrue_paths([b"x"], CHANGED, elsewhere=(b"x",)) == [(ELSEWHERE, b"x")]
    assert untrue_paths([b"x"], REMOVED, elsewhere=(b"x",)) == []

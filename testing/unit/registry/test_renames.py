"""Notes about former paths of repositories."""

from __future__ import annotations

import pytest

from hgfleet.registry.dynamic import renames
from hgfleet.registry.dynamic.renames import Rename

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
NOTE = {"to": "people/bob/y", "owner": "bob", "since": "2026-11-21T00:00:00Z"}


def test_a_note_leads_to_the_newest_path() -> None:
    notes = renames.with_rename({}, "a/x", Rename("a/y", "bob", "1"))
    notes = renames.with_rename(notes, "a/y", Rename("a/z", "bob", "2"))
    assert {old: note["to"] for old, note in notes.items()} == {"a/x": "a/z", "a/y": "a/z"}
    # The repository is renamed back: no path leads to itself.
    notes = renames.with_rename(notes, "a/z", Rename("a/x", "bob", "3"))
    assert {old: note["to"] for old, note in notes.items()} == {"a/y": "a/x", "a/z": "a/x"}


def test_one_owner_has_so_many_notes_at_most() -> None:
    notes = renames.with_rename({}, "a/carols", Rename("a/x", "carol", "0"))
    for number in range(renames.MOST + 5):
        notes = renames.with_rename(notes, f"a/r{number}", Rename(f"a/s{number}", "bob", "1"))
    mine = [path for path, note in notes.items() if note["owner"] == "bob"]
    assert len(mine) == renames.MOST
    assert f"a/r{renames.MOST + 4}" in mine
    assert "a/carols" in notes


def test_notes_of_a_former_person_of_the_name_count_for_themselves() -> None:
    notes = renames.with_rename({}, "a/former", Rename("a/x", "bob", "0", FORMER))
    for number in range(renames.MOST):
        notes = renames.with_rename(notes, f"a/r{number}", Rename(f"a/s{number}", "bob", "1"))
    assert len(notes) == renames.MOST + 1
    rename = renames.rename_of("a/former", notes["a/former"])
    assert rename == Rename("a/x", "bob", "0", FORMER)


def test_no_note_leads_to_a_deleted_repository() -> None:
    notes = {"a/x": {**NOTE, "to": "a/y"}, "a/y": {**NOTE, "to": "a/z"}, "a/w": NOTE}
    assert list(renames.without(notes, "a/y")) == ["a/y", "a/w"]


@pytest.mark.parametrize(
    "value",
    [
        7,
        {},
        {**NOTE, "to": "../x"},
        {**NOTE, "to": 7},
        {**NOTE, "owner": "B"},
        {**NOTE, "since": 1},
        {**NOTE, "owner_id": "bob"},
        {**NOTE, "owner_id": 7},
    ],
)
def test_a_wrong_note_is_none(value: object) -> None:
    assert renames.rename_of("people/bob/x", value) is None
    assert renames.rename_of("people/bob/x", NOTE) is not None
    assert renames.rename_of("../x", NOTE) is None

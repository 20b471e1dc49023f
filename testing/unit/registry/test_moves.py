from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.dynamic.user_repositories import Dynamic, dynamic_of
from hgfleet.registry.model.registry import build
from hgfleet.registry.provision import moves

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "people/bob/x", "people/bob/y"
MINE, OTHER = "1" * 32, "2" * 32
MOVED = Entry("bob", moved_from=OLD, identity=MINE)


@pytest.mark.parametrize(("there", "expected"), [(MINE, True), ("", True), (OTHER, False)])
def test_a_move_is_finished_with_the_folder_of_its_repository_alone(
    tmp_path: Path, there: str, expected: bool
) -> None:
    (tmp_path / OLD / ".hg/store").mkdir(parents=True)
    if there:
        (tmp_path / OLD / identity.FILE).write_text(identity.text(there))
    assert moves.is_unfinished(tmp_path, NEW, MOVED, build({}, {}), {NEW: {}}) is expected


def test_a_move_is_over_once_its_folder_is_there_or_the_old_path_is_taken(tmp_path: Path) -> None:
    (tmp_path / OLD / ".hg/store").mkdir(parents=True)
    static = build({}, {})
    assert not moves.is_unfinished(tmp_path, NEW, MOVED, static, {NEW: {}, OLD: {}})
    assert not moves.is_unfinished(tmp_path, NEW, Entry("bob"), static, {NEW: {}})
    (tmp_path / NEW / ".hg").mkdir(parents=True)
    assert not moves.is_unfinished(tmp_path, NEW, MOVED, static, {NEW: {}})


def put(root: Path, path: str, text: str) -> None:
    (root / path / ".hg/store").mkdir(parents=True)
    (root / path / identity.FILE).write_text(identity.text(text))


def noted(*registered: str) -> Dynamic:
    note = Rename(NEW, "bob", "2026-11-21T10:00:00Z").to_json()
    return dynamic_of({path: {"owner": "bob"} for path in registered}, {OLD: note})


def test_a_folder_that_a_backup_brought_to_its_former_path_moves_by_the_note_of_the_rename(
    tmp_path: Path,
) -> None:
    def former(dynamic: Dynamic, *, is_mirror: bool = False, entry: str = MINE) -> str | None:
        declared = Entry("bob", identity=entry)
        return moves.former(tmp_path, NEW, declared, build({}, {}), dynamic, is_mirror=is_mirror)

    assert former(noted(NEW)) is None
    put(tmp_path, OLD, MINE)
    assert former(noted(NEW)) == OLD
    assert former(noted(NEW), is_mirror=True) is None
    # Another repository, an entry of a release before, a path that is taken, no note.
    assert former(noted(NEW), entry=OTHER) is None
    assert former(noted(NEW), entry="") is None
    assert former(noted(NEW, OLD)) is None
    assert former(dynamic_of({NEW: {"owner": "bob"}}, {})) is None
    put(tmp_path, NEW, MINE)
    assert former(noted(NEW)) is None

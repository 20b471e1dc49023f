from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.registry import moves
from hgfleet.registry.entry import Entry
from hgfleet.registry.model import build

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

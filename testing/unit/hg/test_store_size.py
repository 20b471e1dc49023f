"""The size of a store is compared with a limit, without more reading than that needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hgfleet.hg.store_size import BLOCK, blocks, made_folders, on_disk, reaches

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_all_files_of_a_store_count(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "00changelog.i").write_bytes(b"x" * 40)
    (tmp_path / "data/file.i").write_bytes(b"x" * 60)
    assert reaches(str(tmp_path), 100)
    assert not reaches(str(tmp_path), 101)


def test_a_missing_store_has_no_bytes(tmp_path: Path) -> None:
    assert not reaches(str(tmp_path / "none"), 1)
    assert reaches(str(tmp_path / "none"), 0)


def test_the_walk_ends_where_the_limit_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x")
    seen = []
    lstat = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: seen.append(path) or lstat(path))
    assert reaches(str(tmp_path), 3)
    assert len(seen) == 3


def test_a_file_takes_whole_blocks_and_a_folder_takes_one(tmp_path: Path) -> None:
    assert [blocks(length) for length in (0, 1, 4096, 4097)] == [0, 4096, 4096, 8192]
    assert on_disk(str(tmp_path / "none")) == 0
    (tmp_path / "data").mkdir()
    (tmp_path / "data/empty").touch()
    (tmp_path / "data/small").write_bytes(b"x")
    (tmp_path / "data/large").write_bytes(b"x" * (3 * BLOCK + 1))
    assert on_disk(str(tmp_path)) == 7 * BLOCK


def test_the_blocks_are_those_that_the_disk_has_lost(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"x" * (number * 700 + 1))
    lost = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert on_disk(str(tmp_path)) - BLOCK == lost


def test_folders_of_new_files_alone_are_new(tmp_path: Path) -> None:
    old, new = tmp_path / "data/old", tmp_path / "data/new/inner"
    for folder in (old, new):
        folder.mkdir(parents=True)
    (old / "before").touch()
    made = [old / "file", new / "one", new / "two", tmp_path / "data/new/three"]
    for path in made:
        path.touch()
    assert made_folders(map(str, made)) == 2
    assert made_folders([str(new / "one")]) == 0
    assert made_folders([]) == 0
    assert made_folders([str(tmp_path / "none/file")]) == 0

"""The size of a store is compared with a limit, without more reading than that needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hgfleet.hg.store_size import reaches

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

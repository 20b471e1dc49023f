"""Repositories on a mirror's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.pushlog import log_file
from hgfleet.replication import places

if TYPE_CHECKING:
    from pathlib import Path


def test_a_repository_without_records_or_without_a_folder_is_emptied(tmp_path: Path) -> None:
    for path, content in (("team/whole", b"record\n"), ("empty", b""), ("bare", None)):
        store = tmp_path / path / places.STORE
        store.mkdir(parents=True)
        if content is not None:
            (store / log_file.NAME).write_bytes(content)
    paths = ["team/whole", "empty", "bare", "gone"]
    assert places.emptied(tmp_path, paths) == ["empty", "bare", "gone"]

"""A revlog is cut to the changesets of a recovery point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.point import recovered
from hgfleet.backup.point.revlog_index import Kept
from hgfleet.core.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("kept", "sizes"),
    [
        (Kept(2, 10, 20, is_inline=False), {"r.i": 10, "r.d": 20}),
        (Kept(9, 16, 32, is_inline=False), {"r.i": 16, "r.d": 32}),
        # The data is in the index; the other file is of a transaction that was about to move it.
        (Kept(2, 10, 0, is_inline=True), {"r.i": 10}),
        (Kept(0, 0, 0, is_inline=False), {}),
    ],
)
def test_index_and_data_keep_the_same_revisions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: Kept, sizes: dict[str, int]
) -> None:
    monkeypatch.setattr(recovered.revlog_index, "keep", lambda _index, _changesets: kept)
    (tmp_path / "r.i").write_bytes(bytes(16))
    (tmp_path / "r.d").write_bytes(bytes(32))
    recovered.cut(tmp_path / "r.i", 2)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == sizes


def test_data_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = Kept(2, 10, 33, is_inline=False)
    monkeypatch.setattr(recovered.revlog_index, "keep", lambda _index, _changesets: kept)
    (tmp_path / "r.i").write_bytes(bytes(16))
    (tmp_path / "r.d").write_bytes(bytes(32))
    with pytest.raises(HostError, match=r"r\.d: got 32 bytes, expected 33"):
        recovered.cut(tmp_path / "r.i", 2)

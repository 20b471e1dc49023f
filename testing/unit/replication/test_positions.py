"""Positions on a disk that is full, or does not answer: no push waits for it, none is forgotten."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from hgfleet.pushlog.committed import Stamp
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.primary.outbox import Position
from hgfleet.replication.primary.positions import FILE, Positions

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

A, B = "1f2e" * 8, "3d4c" * 8


def position(identity: str, number: int = 7) -> Position:
    return Position(identity, Tip(number, "ab" * 32, identity, 100, 1), Stamp(1, 100, 5), 9)


def test_a_full_disk_keeps_positions_in_memory_until_there_is_room(tmp_path: Path) -> None:
    made = Positions(tmp_path)
    made.save(position(A))
    made.announce(A, position(A).tip)
    file = made._file
    assert file is not None
    (pages,) = file.execute("pragma page_count").fetchone()
    file.execute(f"pragma max_page_count = {pages}")
    for number in range(200):
        made.note(f"fact {number}", "x" * 200)
    made.save(position(A, 8))
    made.save(position(B))
    made.announce(B, position(B).tip)
    made.forget(A)
    assert "database or disk is full" in made.flush()
    assert made.get(B) == position(B)
    assert made.get(A) is None
    file.execute("pragma max_page_count = 100000")
    assert made.flush() == ""
    made.save(position(B, 9))
    made.close()
    again = Positions(tmp_path)
    assert list(again) == [position(B, 9)]
    assert again.announced(B) == position(B).tip
    assert again.announced(A) is None
    assert again.fact("fact 199") == "x" * 200
    assert again.flush() == ""


def test_a_file_that_cannot_be_opened_is_not_deleted_and_is_taken_over_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Positions(tmp_path)
    for identity in (A, B):
        before.save(position(identity))
    before.note("stream", "made")
    before.close()

    def connect(*_: Any, **__: Any) -> Any:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        made = Positions(tmp_path)
        assert list(made) == []
        made.save(position(A, 8))
        assert "unable to open database file" in made.flush()
    assert (tmp_path / FILE).exists()
    assert made.flush() == ""
    # A position that was learnt in the meantime is newer.
    assert made.get(A) == position(A, 8)
    assert made.get(B) == position(B)
    assert made.fact("stream") == "made"
    made.close()
    assert Positions(tmp_path).get(A) == position(A, 8)


def test_a_corrupt_file_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"nonsense" * 1000)
    made = Positions(tmp_path)
    made.save(position(A))
    made.close()
    assert list(Positions(tmp_path)) == [position(A)]

"""Bookmarks of a copied repository, compared with the records of its push log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.promotion import bookmarks
from hgfleet.replication.promotion.bookmarks import Stale

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.pushlog.record import Node

ID = "7d" * 16
ONE, OTHER = "11" * 20, "22" * 20
Move = tuple[str, "Node | None", "Node | None"]


def record(number: int, *moves: Move, previous: str = FIRST) -> Record:
    heads = Heads(digest="0" * 64)
    return Record(number, ID, "push", "alice", 1, previous, heads=heads, bookmarks=moves)


def test_the_last_record_of_a_name_tells_where_it_is() -> None:
    moves = bookmarks.last_moves(
        [record(1, ("main", None, ONE), ("old", None, ONE)), record(2, ("main", ONE, OTHER))]
    )
    assert moves == {"main": OTHER, "old": ONE}
    assert bookmarks.stale(moves, {"main": OTHER, "old": ONE}) == []
    assert bookmarks.stale(moves, {"main": ONE}) == [
        Stale("main", ONE, OTHER),
        Stale("old", None, ONE),
    ]
    assert str(Stale("old", None, ONE)) == "bookmark 'old': got none, expected 111111111111"


def test_a_name_that_was_deleted_and_one_older_than_the_log() -> None:
    moves = bookmarks.last_moves([record(1, ("gone", ONE, None))])
    assert bookmarks.stale(moves, {"gone": ONE}) == [Stale("gone", ONE, None)]
    assert bookmarks.stale(moves, {"of before": ONE}) == []


def test_a_file_is_read_as_core_reads_it() -> None:
    text = f"{ONE} main\n\nnonsense\n{OTHER} two words\n{'1' * 39} short\n".encode()
    text += f"{ONE} ".encode() + b"caf\xe9\n"
    assert bookmarks.parse(text) == {"main": ONE, "two words": OTHER, "caf\udce9": ONE}


def test_the_files_of_a_repository_are_compared_with_its_log(tmp_path: Path) -> None:
    assert bookmarks.find_stale(tmp_path) == []
    store = tmp_path / ".hg/store"
    store.mkdir(parents=True)
    first = record(1, ("main", None, ONE)).line()
    second = record(2, ("main", ONE, OTHER), previous=hash_of(first)).line()
    (store / log_file.NAME).write_bytes(first + b"\n" + second + b"\n")
    assert bookmarks.find_stale(tmp_path) == [Stale("main", None, OTHER)]
    (tmp_path / ".hg/bookmarks").write_text(f"{ONE} main\n")
    assert bookmarks.find_stale(tmp_path) == [Stale("main", ONE, OTHER)]
    (tmp_path / ".hg/bookmarks").write_text(f"{OTHER} main\n")
    assert bookmarks.find_stale(tmp_path) == []
    # A repository with the requirement of core for it.
    (tmp_path / ".hg/bookmarks").rename(store / "bookmarks")
    assert bookmarks.find_stale(tmp_path) == []

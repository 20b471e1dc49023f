"""Repositories on a mirror's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.mirror import places
from hgfleet.replication.mirror.jobs import Listed

if TYPE_CHECKING:
    from pathlib import Path

ID = "1f" * 16


def test_a_repository_without_records_or_without_a_folder_is_emptied(tmp_path: Path) -> None:
    for path, content in (("team/whole", b"record\n"), ("empty", b""), ("bare", None)):
        store = tmp_path / path / places.STORE
        store.mkdir(parents=True)
        if content is not None:
            (store / log_file.NAME).write_bytes(content)
    paths = ["team/whole", "empty", "bare", "gone"]
    assert places.emptied(tmp_path, paths) == ["empty", "bare", "gone"]


def test_a_log_that_is_ahead_is_looked_at_where_that_of_the_primary_ends(tmp_path: Path) -> None:
    store = tmp_path / "team/tool" / places.STORE
    store.mkdir(parents=True)
    lines, hashes = b"", [FIRST]
    for number in (1, 2, 3):
        heads = Heads(digest=Heads.digest_of(()))
        line = Record(number, ID, "push", "alice", number, hashes[-1], heads=heads).line()
        lines += line + b"\n"
        hashes.append(hash_of(line))
    (store / log_file.NAME).write_bytes(lines)
    by_identity = places.find(tmp_path)

    def is_other(*listed: Listed) -> bool:
        return places.against(tmp_path, by_identity, listed)[ID].is_other

    assert by_identity[ID].tip.id == 3
    # The primary lost push 3, or all of them; or it has another push 2 than this host.
    assert not is_other(Listed(ID, 2, hashes[2]))
    assert not is_other(Listed(ID))
    assert is_other(Listed(ID, 2, hashes[1]))
    assert not is_other(Listed(ID, problem="EIO"), Listed("2e" * 16, 2, hashes[2]))
    (store / log_file.NAME).unlink()
    assert not is_other(Listed(ID, 2, hashes[1]))

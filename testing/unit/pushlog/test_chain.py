"""Which record may follow which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain, log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, hash_of
from testing.support.pushlog_records import IDENTITY, lines, record

if TYPE_CHECKING:
    from pathlib import Path

ONE = record()
TIP = Tip(1, hash_of(ONE.line()), IDENTITY, 100, 2)


def test_the_first_record_begins_a_chain() -> None:
    assert chain.problem(Tip(), record(id=1, previous=FIRST)) is None


def test_a_record_with_the_next_id_and_the_hash_of_the_last_one_follows() -> None:
    assert chain.problem(TIP, record(id=2, previous=TIP.hash, epoch=2)) is None
    assert chain.problem(TIP, record(id=2, previous=TIP.hash, epoch=3)) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": 1}, "record 1 follows record 1"),
        ({"id": 3}, "record 3 follows record 1"),
        ({"previous": "1" * 64}, "record 2 continues 111111111111, and record 1 of this chain is"),
        ({"repository": "8e" * 16}, f"belongs to repository {'8e' * 16}, this chain to {IDENTITY}"),
        ({"epoch": 1}, "record 2 has epoch 1, the record before it 2"),
    ],
)
def test_any_other_record_does_not(changes: dict[str, Any], words: str) -> None:
    follows = {"id": 2, "previous": TIP.hash, "epoch": 2}
    assert words in (chain.problem(TIP, record(**follows | changes)) or "")


def test_a_whole_file_is_checked_up_to_the_first_break(tmp_path: Path) -> None:
    file = tmp_path / "pushlog"
    good = lines(5)
    file.write_bytes(b"".join(line + b"\n" for line in good))
    assert [entry.record.id for entry in chain.checked(log_file.entries(file))] == [1, 2, 3, 4, 5]
    good[2] = good[2].replace(b"alice", b"mallo")
    file.write_bytes(b"".join(line + b"\n" for line in good))
    # The changed record itself is well-formed: the record after it names another.
    entries = chain.checked(log_file.entries(file))
    assert [next(entries).record.id for _ in range(3)] == [1, 2, 3]
    with pytest.raises(PushlogError, match="the chain is broken at byte"):
        next(entries)

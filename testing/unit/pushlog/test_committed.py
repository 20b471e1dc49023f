from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.pushlog import committed
from hgfleet.pushlog.committed import CommittedLog, size_before
from testing.support.pushlog_lines import Chain, node_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    made = Chain(tmp_path / "pushlog")
    made.push(node_of(1))
    made.push(node_of(2))
    return made


def ids(log: CommittedLog) -> list[int]:
    return [entry.record.id for entry in log.entries()]


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    with CommittedLog(tmp_path / "pushlog") as log:
        assert (log.end, log.read(0, 10), ids(log)) == (0, b"", [])


def test_the_record_of_a_running_transaction_is_not_there_yet(chain: Chain) -> None:
    size = chain.file.stat().st_size
    (chain.file.parent / "journal").write_bytes(b"00changelog.i\x00120\npushlog\x00%d\n" % size)
    chain.push(node_of(3))
    with CommittedLog(chain.file) as log:
        assert (log.end, ids(log)) == (size, [1, 2])
    (chain.file.parent / "journal").unlink()
    with CommittedLog(chain.file) as log:
        assert ids(log) == [1, 2, 3]


def test_a_transaction_without_a_record_hides_none(chain: Chain) -> None:
    (chain.file.parent / "journal").write_bytes(b"00changelog.i\x00120\n")
    with CommittedLog(chain.file) as log:
        assert ids(log) == [1, 2]


def test_an_incomplete_line_is_not_read(chain: Chain) -> None:
    size = chain.file.stat().st_size
    with chain.file.open("ab") as file:
        file.write(b'{"bookmarks":')
    with CommittedLog(chain.file) as log:
        assert (log.end, ids(log)) == (size, [1, 2])


def test_a_log_that_changes_during_the_look_at_the_journal_is_looked_at_again(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = chain.file.stat().st_size
    undone = chain.record((node_of(3),))
    with chain.file.open("ab") as file:
        file.write(undone.line() + b"\n")
    journal = chain.file.parent / "journal"
    journal.write_bytes(b"pushlog\x00%d\n" % size)
    looks = []

    def read(content: bytes) -> int | None:
        looks.append(content)
        if len(looks) > 1:
            return size_before(content)
        # The first look comes between two transactions: the first is undone, the next appends.
        with chain.file.open("r+b") as file:
            file.truncate(size)
        chain.push(node_of(4))
        return None

    monkeypatch.setattr(committed, "size_before", read)
    with CommittedLog(chain.file) as log:
        assert ids(log) == [1, 2]
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("journal", "size"),
    [
        (b"", None),
        (b"00changelog.i\x0064\n", None),
        (b"00changelog.i\x0064\npushlog\x00512\nphaseroots\x000\n", 512),
        (b"pushlog\x000\n", 0),
        (b"data/pushlog.i\x0010\n", None),
        (b"pushlog\n", None),
    ],
)
def test_the_journal_names_the_size_before(journal: bytes, size: int | None) -> None:
    assert size_before(journal) == size

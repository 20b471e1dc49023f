"""The file of a push log: its tip, its lines, and ends that a crash left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import hash_of
from testing.support.pushlog_records import IDENTITY, NODE, lines, record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pushlog"


def test_no_file_and_an_empty_one_have_no_records(file: Path) -> None:
    for _ in range(2):
        assert log_file.tip(file) == Tip()
        assert log_file.last(file) is None
        assert list(log_file.entries(file)) == []
        file.touch()


def test_the_tip_is_the_last_complete_line(file: Path) -> None:
    content = b"".join(line + b"\n" for line in lines(3))
    file.write_bytes(content)
    expected = Tip(3, hash_of(lines(3)[-1]), IDENTITY, len(content), 1)
    assert log_file.tip(file) == expected
    for rest in (b"{", b'{"id":4' * 20_000):
        file.write_bytes(content + rest)
        assert log_file.tip(file) == expected
        last = log_file.last(file)
        assert last is not None
        assert last.id == 3
        assert [entry.record.id for entry in log_file.entries(file)] == [1, 2, 3]
    file.write_bytes(b"{" * 200_000)
    assert log_file.tip(file) == Tip()


def test_a_last_line_that_is_no_record_is_an_error(file: Path) -> None:
    file.write_bytes(lines(1)[0] + b"\n\n")
    with pytest.raises(PushlogError, match="not a record of the push log"):
        log_file.tip(file)
    file.write_bytes(lines(1)[0] + b"\nnothing\n")
    with pytest.raises(PushlogError, match="not a record of the push log"):
        log_file.tip(file)
    with pytest.raises(PushlogError, match=f"{file}, byte {len(lines(1)[0]) + 1}: "):
        list(log_file.entries(file))


def test_entries_are_read_from_an_offset_on(file: Path) -> None:
    file.write_bytes(b"".join(line + b"\n" for line in lines(3)))
    first = next(iter(log_file.entries(file)))
    assert [entry.record.id for entry in log_file.entries(file, first.end)] == [2, 3]
    assert [line for _, line in log_file.lines(file, first.end)] == lines(3)[1:]
    assert list(log_file.entries(file, file.stat().st_size)) == []


def test_a_long_log_is_not_read_for_its_tip(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"".join(line + b"\n" for line in lines(2)) * 5000)
    asked = pieces(monkeypatch)
    assert log_file.tip(file).id == 2
    assert sum(asked) <= 128 * 1024


def test_a_long_last_line_is_read_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = record(id=2, previous=hash_of(lines(1)[0]), changesets=(NODE,) * 200_000)
    file.write_bytes(lines(1)[0] + b"\n" + last.line() + b"\n")
    asked = pieces(monkeypatch)
    assert log_file.tip(file).id == 2
    # 8 MB: joining equal pieces of 64 KiB would copy 500 MB.
    assert len(asked) <= 10


def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []

    def pread(descriptor: int, count: int, offset: int, plain=os.pread) -> bytes:  # type: ignore[no-untyped-def]
        asked.append(count)
        return plain(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    return asked

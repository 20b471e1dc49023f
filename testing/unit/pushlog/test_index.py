from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import PushlogError, TemporaryError
from hgfleet.pushlog import index, index_step, tables, view
from hgfleet.pushlog.tables import Selection
from hgfleet.pushlog.view import NotIndexedError, View
from testing.support.pushlog_lines import START_MS, Chain, node_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = tmp_path / ".hg" / "store"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def cache(store: Path) -> Path:
    return store.parent / "cache"


@pytest.fixture
def file(cache: Path) -> Path:
    return cache / index_step.NAME


@pytest.fixture
def chain(store: Path) -> Chain:
    made = Chain(store / "pushlog")
    for number in range(10):
        made.push(node_of(2 * number), node_of(2 * number + 1), user="ab"[number % 2])
    return made


def seen(store: Path, cache: Path, wanted: Selection | None = None) -> list[int]:
    with View(store, cache) as pushes:
        return [push.id for push in pushes.pushes(wanted or Selection(), 1000)]


def covered_id(file: Path) -> int:
    connection = index.open_for_reading(file)
    assert connection is not None
    entry = tables.covered(connection)
    connection.close()
    assert entry is not None
    return entry.id


SELECTIONS = [
    (Selection(), range(1, 11)),
    (Selection(after_id=3, to_id=5), [4, 5]),
    (Selection(after_id=10), []),
    (Selection(after_id=2**62), []),
    (Selection(users=("a",)), [1, 3, 5, 7, 9]),
    (Selection(users=("a", "b"), after_id=7), [8, 9, 10]),
    (Selection(users=("a' OR 1 --",)), []),
    (Selection(ids=(9, 2)), [2, 9]),
    (Selection(ids=()), []),
    (Selection(has_changesets=True, after_id=8), [9, 10]),
    (Selection(from_time=START_MS + 60_000, until_time=START_MS + 240_000), [2, 3, 4]),
]


@pytest.mark.parametrize("indexed", [0, 4, 10])
@pytest.mark.parametrize(("wanted", "expected"), SELECTIONS)
def test_the_index_and_the_log_behind_it_give_the_same_pushes(
    store: Path,
    cache: Path,
    file: Path,
    chain: Chain,
    indexed: int,
    wanted: Selection,
    expected: list[int],
) -> None:
    if indexed:
        whole = chain.file.read_bytes()
        chain.file.write_bytes(b"".join(whole.splitlines(keepends=True)[:indexed]))
        assert index.update(chain.file, file).pushes == indexed
        chain.file.write_bytes(whole)
    assert seen(store, cache, wanted) == list(expected)
    with View(store, cache) as pushes:
        ids = list(expected)[::-1]
        assert pushes.count(wanted) == len(ids)
        assert [push.id for push in pushes.newest(wanted, 3)] == ids[:3]
        assert [push.id for push in pushes.newest(wanted, 3, skip=2)] == ids[2:5]
        assert [push.id for push in pushes.newest(wanted, 3, skip=8)] == ids[8:]
        assert pushes.nodes(7) == [bytes.fromhex(node_of(12)), bytes.fromhex(node_of(13))]
        assert pushes.push_of(bytes.fromhex(node_of(12))) == 7
        assert pushes.push_of(bytes.fromhex(node_of(99))) is None
        assert pushes.named(node_of(3)[:7]) == {bytes.fromhex(node_of(3)): 2}
        assert (pushes.last_id, pushes.identity) == (10, chain.identity)


def test_an_update_adds_what_is_new(file: Path, chain: Chain) -> None:
    assert index.update(chain.file, file) == (10, True)
    assert index.update(chain.file, file) == (0, False)
    chain.push(node_of(50))
    assert index.update(chain.file, file) == (1, False)
    assert covered_id(file) == 11
    assert file.stat().st_mode & 0o777 == index.MODE


def test_the_index_of_another_chain_is_not_read_and_is_replaced(
    store: Path, cache: Path, file: Path, chain: Chain
) -> None:
    index.update(chain.file, file)
    chain.file.unlink()
    other = Chain(chain.file, "8e" * 16)
    for number in range(20):
        other.push(node_of(100 + number), user="somebody else")
    assert seen(store, cache) == list(range(1, 21))
    assert index.update(chain.file, file) == (20, True)
    assert seen(store, cache) == list(range(1, 21))


def test_a_truncated_log_takes_its_index_along(
    store: Path, cache: Path, file: Path, chain: Chain
) -> None:
    index.update(chain.file, file)
    lines = chain.file.read_bytes().splitlines(keepends=True)
    chain.file.write_bytes(b"".join(lines[:6]))
    assert seen(store, cache) == [1, 2, 3, 4, 5, 6]
    assert index.update(chain.file, file) == (6, True)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_damaged_index_is_passed_over_and_replaced(
    store: Path, cache: Path, file: Path, chain: Chain, content: bytes
) -> None:
    cache.mkdir()
    file.write_bytes(content)
    assert seen(store, cache) == list(range(1, 11))
    assert index.update(chain.file, file) == (10, True)
    assert covered_id(file) == 10


def test_an_index_of_another_version_is_replaced(file: Path, chain: Chain) -> None:
    index.update(chain.file, file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE covered SET version = 99")
    connection.close()
    assert index.open_for_reading(file) is None
    assert index.update(chain.file, file) == (10, True)


def test_a_long_log_needs_its_index(
    store: Path, cache: Path, file: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "TAIL", chain.file.stat().st_size - 1)
    with pytest.raises(NotIndexedError, match="hgfleet pushlog index PATH"):
        View(store, cache)
    index.update(chain.file, file)
    assert seen(store, cache) == list(range(1, 11))


def test_a_session_updates_in_steps(
    store: Path, cache: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = []

    def counted(log: Path, to: Path) -> index.Updated:
        updates.append(log)
        return original(log, to)

    original = index.update
    monkeypatch.setattr(index, "update", counted)
    index.refresh(str(chain.file), str(cache / index_step.NAME))
    assert not updates
    pushes = 10
    while len(updates) < 3:
        chain.push(node_of(1000 + pushes))
        pushes += 1
        index.refresh(str(chain.file), str(cache / index_step.NAME))
    size = chain.file.stat().st_size
    assert 3 * index_step.STEP <= size < 4 * index_step.STEP + 4096
    assert seen(store, cache) == list(range(1, pushes + 1))


def test_a_session_is_not_failed_by_its_index(cache: Path, chain: Chain) -> None:
    for number in range(60):
        chain.push(node_of(number))
    cache.write_text("no folder")
    index.refresh(str(chain.file), str(cache / index_step.NAME))
    assert cache.read_text() == "no folder"


def test_two_writers_do_not_meet(file: Path, chain: Chain) -> None:
    file.parent.mkdir()
    with index._alone(file.parent), pytest.raises(TemporaryError, match="another process"):
        index.update(chain.file, file)


def test_a_record_that_is_not_committed_is_not_indexed(file: Path, chain: Chain) -> None:
    (chain.file.parent / "journal").write_bytes(b"pushlog\x00%d\n" % chain.file.stat().st_size)
    chain.push(node_of(70))
    assert index.update(chain.file, file).pushes == 10


def test_a_broken_chain_is_named(store: Path, cache: Path, file: Path, chain: Chain) -> None:
    lines = chain.file.read_bytes().splitlines(keepends=True)
    chain.file.write_bytes(b"".join(lines[:4] + lines[5:]))
    with pytest.raises(PushlogError, match="record 6 follows record 4"):
        index.update(chain.file, file)
    with pytest.raises(PushlogError, match="record 6 follows record 4"):
        View(store, cache)
    assert not list(file.parent.glob("*"))


def test_a_new_index_changes_the_folder_that_kept_pages_depend_on(file: Path, chain: Chain) -> None:
    folder = chain.file.parent.parent
    os.utime(folder, ns=(0, 0))
    index.update(chain.file, file)
    assert folder.stat().st_mtime_ns > 0
    os.utime(folder, ns=(0, 0))
    chain.push(node_of(90))
    index.update(chain.file, file)
    assert folder.stat().st_mtime_ns == 0


def test_no_address_and_no_key_is_in_the_index(file: Path, chain: Chain) -> None:
    record = chain.push(node_of(91))
    index.update(chain.file, file)
    content = file.read_bytes()
    assert record.client.encode() not in content
    assert record.key.encode() not in content
    assert record.user.encode() in content


def test_the_kind_of_proof_is_kept(store: Path, cache: Path, chain: Chain) -> None:
    chain.push(node_of(92), key="certificate:alice@example.org")
    chain.push(node_of(93), key="", client="")
    chain.push(user="carol")
    assert seen(store, cache, Selection(has_changesets=True, after_id=10)) == [11, 12]
    with View(store, cache) as pushes:
        assert [push.via for push in pushes.newest(Selection(), 4)] == [
            "key",
            "operator",
            "certificate",
            "key",
        ]


def test_an_adoption_and_a_strip_bring_no_changesets(store: Path, cache: Path) -> None:
    chain = Chain(store / "pushlog")
    chain.push(kind="adoption", user="operator", key="", client="")
    chain.push(node_of(1))
    chain.push(node_of(1), kind="strip")
    with View(store, cache) as pushes:
        adoption = pushes.adoption()
        assert adoption is not None
        assert adoption.id == 1
        assert pushes.push_of(bytes.fromhex(node_of(1))) == 2
        assert [push.changesets for push in pushes.pushes(Selection(), 9)] == [0, 1, 0]
        last = pushes.last()
        assert last is not None
        assert last.kind == "strip"

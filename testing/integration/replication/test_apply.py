"""A worker of the applier, against real repositories: pushes arrive on the mirror unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core import identity as identities
from hgfleet.pushlog import index_step
from hgfleet.replication.mirror.apply import open_repository
from hgfleet.replication.mirror.failures import Kind
from hgfleet.replication.mirror.fresh_copy import Rebuild
from hgfleet.replication.mirror.jobs import Job
from hgfleet.replication.mirror.worker import Worker
from hgfleet.replication.repositories.registry_paths import Known
from hgfleet.replication.source.client import GoneError
from hgfleet.storage import work_folder
from testing.integration.support.primary import InProcessSource, Primary, create, state

if TYPE_CHECKING:
    from hgfleet.replication.mirror.jobs import Result

ROOT = Path(__file__).resolve().parents[3]


class Pair:
    """A primary, and a mirror with a worker."""

    def __init__(self, folder: Path) -> None:
        self.primary = Primary(folder / "primary/a")
        self.source = InProcessSource(self.primary)
        self.root = folder / "mirror"
        create(self.root / "a", self.primary.identity)
        self.known = Known({self.primary.identity: "a"})
        registry: Any = SimpleNamespace(read=lambda: self.known)
        self.folders: Any = SimpleNamespace(
            hgrc=folder / "hgrc", manifests=folder / "manifests", repositories=self.root
        )
        self.worker = Worker(self.root, registry, self.source, self.repair)

    def repair(self, identity: str) -> None:
        """Replace a repository as a resync does, without the registry of a whole host."""
        source: Any = self.source
        new, place = self.root / ".replication/new", self.root / self.known.path(identity)
        Rebuild(self.folders, source, new, identity, print, self.root).make()
        (new / identities.FILE).write_text(identities.text(identity))
        work_folder.rename_exchange(new, place)

    def run(self, *messages: tuple[bytes, bytes], up_to_date: bool = False) -> Result:
        return self.worker.run(Job(self.primary.identity, messages, up_to_date=up_to_date))

    def run_at(self, path: str, *messages: tuple[bytes, bytes]) -> Result:
        """Run a job while the registry names another path."""
        self.known = Known({self.primary.identity: path})
        return self.run(*messages)

    def is_equal(self) -> bool:
        assert state(self.root / "a") == state(self.primary.path)
        return True


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setenv("HGRCPATH", "")
    return Pair(tmp_path)


def test_each_kind_of_push_arrives_whole(pair: Pair) -> None:
    random = Random(11)
    for _number in range(60):
        pair.primary.push_anything(random)
    records = [entry.record for entry in pair.primary.entries()]
    assert any(r.markers for r in records)
    assert any(r.bookmarks for r in records)
    assert any(old and old != new for r in records for _, old, new in r.phases)
    result = pair.run(*pair.primary.messages())
    assert result.failure is None
    assert result.tip.id == 60
    assert pair.source.asked == 0
    assert pair.is_equal()


def test_a_message_that_arrives_twice_changes_nothing(pair: Pair) -> None:
    pair.primary.push_commits(2)
    pair.primary.push_commits()
    messages = pair.primary.messages()
    assert pair.run(*messages, *messages).failure is None
    assert pair.run(messages[0]).tip.id == 2
    assert pair.is_equal()


def test_a_gap_is_filled_from_the_source(pair: Pair) -> None:
    for _number in range(4):
        pair.primary.push_commits()
    result = pair.run(pair.primary.messages()[3])
    assert (result.failure, result.tip.id) == (None, 4)
    assert pair.is_equal()


def test_a_gap_waits_while_the_source_is_away(pair: Pair) -> None:
    for _number in range(3):
        pair.primary.push_commits()
    pair.source.down = True
    first, _second, third = pair.primary.messages()
    result = pair.run(first, third)
    assert result.tip.id == 1
    assert result.failure is not None
    assert result.failure.kind is Kind.NETWORK
    pair.source.down = False
    assert pair.run(third).failure is None
    assert pair.is_equal()


def test_an_empty_repository_is_filled_at_once(pair: Pair) -> None:
    random = Random(3)
    for _number in range(40):
        pair.primary.push_anything(random)
    result = pair.run(up_to_date=True)
    assert (result.failure, result.tip.id) == (None, 40)
    assert pair.source.asked < 10
    assert pair.is_equal()


def test_a_repository_older_than_its_log_is_filled_from_the_source(pair: Pair) -> None:
    pair.primary.adopt(5)
    pair.primary.push_commits()
    result = pair.run(*pair.primary.messages())
    assert (result.failure, result.tip.id) == (None, 2)
    assert pair.is_equal()


def test_a_log_that_is_not_that_of_the_state_fills_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    right = pair.source.state(pair.primary.identity)
    monkeypatch.setattr(pair.source, "state", lambda _identity: replace(right, hash="ab" * 32))
    result = pair.run(up_to_date=True)
    assert result.failure is not None
    assert result.failure.kind is Kind.REFUSED
    assert state(pair.root / "a")["changesets"] == []
    monkeypatch.undo()
    monkeypatch.setenv("HGRCPATH", "")
    assert pair.run(up_to_date=True).failure is None
    assert pair.is_equal()


def test_a_state_that_is_not_that_of_its_record_fills_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary that lost changesets: its log names heads that it does not have any more."""
    pair.primary.push_commits()
    pair.primary.push_commits()
    right = pair.source.state(pair.primary.identity)
    parent = pair.primary.repo[0].hex().decode("ascii")
    monkeypatch.setattr(pair.source, "state", lambda _identity: replace(right, heads=(parent,)))
    result = pair.run(up_to_date=True)
    assert result.failure is not None
    assert result.failure.kind is Kind.REFUSED
    assert "it lost changesets" in result.failure.reason
    assert state(pair.root / "a")["changesets"] == []


def test_changesets_too_large_for_a_message_come_from_the_source(pair: Pair) -> None:
    pair.primary.push_commits(5)
    ((line, _changegroup),) = pair.primary.messages()
    assert pair.run((line, b"")).failure is None
    assert pair.source.asked == 1
    assert pair.is_equal()


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda _data: b"no changegroup"])
def test_a_damaged_message_is_fetched_again(pair: Pair, damage: object) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits(3)
    first, (line, changegroup) = pair.primary.messages()
    assert callable(damage)
    assert pair.run(first, (line, damage(changegroup))).failure is None
    assert pair.is_equal()


def test_a_changegroup_with_other_changesets_is_refused(pair: Pair) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    pair.source.down = True
    (line, _), _second = pair.primary.messages()
    both = pair.primary.changegroup(
        [n for e in pair.primary.entries() for n in e.record.changesets]
    )
    before = state(pair.root / "a")
    assert pair.run((line, both)).failure is not None
    assert state(pair.root / "a") == before


def test_a_mirror_with_pushes_of_its_own_is_left_alone(pair: Pair) -> None:
    own = Primary(pair.root / "own", identity=pair.primary.identity)
    with own.push():
        own.commit(b"of the mirror\n")
    pair.primary.push_commits()
    pair.primary.push_commits()
    before = state(own.path)
    for message in pair.primary.messages():
        result = pair.run_at("own", message)
        assert result.failure is not None
        assert result.failure.kind is Kind.DIVERGED
    assert state(own.path) == before


def test_a_mirror_with_changesets_of_its_own_is_left_alone(pair: Pair) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    first, second = pair.primary.messages()
    assert pair.run(first).failure is None
    stray = Primary.__new__(Primary)
    stray.repo = open_repository(pair.root / "a")
    with stray.repo.wlock(), stray.repo.lock(), stray.repo.transaction(b"commit"):
        stray.commit(b"of the mirror\n")
    before = state(pair.root / "a")
    result = pair.run(second)
    assert result.failure is not None
    assert result.failure.kind is Kind.DIVERGED
    assert "changesets of its own" in result.failure.reason
    assert state(pair.root / "a") == before


def test_changesets_without_a_log_are_left_alone(pair: Pair) -> None:
    own = Primary(pair.root / "own")
    own.push_commits()
    own.log.unlink()
    pair.primary.push_commits()
    result = pair.run_at("own", *pair.primary.messages())
    assert result.failure is not None
    assert result.failure.kind is Kind.DIVERGED
    assert "1 changesets and no push log" in result.failure.reason
    assert result.tip.id == 0


def test_another_repository_identity_is_refused(pair: Pair) -> None:
    pair.primary.push_commits()
    assert pair.run(*pair.primary.messages()).failure is None
    other = Primary(pair.primary.path.parent / "other", identity="ab" * 16)
    other.push_commits()
    result = pair.run(*other.messages())
    assert result.failure is not None
    assert result.failure.kind is Kind.DIVERGED
    assert "belongs to repository abab" in result.failure.reason
    assert pair.is_equal()


def test_a_removal_of_changesets_asks_for_the_repository_anew(pair: Pair) -> None:
    pair.primary.push_commits(2)
    assert pair.run(*pair.primary.messages()).failure is None
    before = state(pair.root / "a")
    last = pair.primary.entries()[-1]
    removal = replace(last.record, id=2, kind="strip", previous=last.hash, phases=()).line()
    result = pair.run((removal, b""))
    assert result.failure is not None
    assert result.failure.kind is Kind.REMOVAL
    assert state(pair.root / "a") == before


def test_changesets_that_the_primary_has_no_more_ask_for_the_repository_anew(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    first, (line, _) = pair.primary.messages()
    assert pair.run(first).failure is None

    def gone(_path: str, _nodes: object) -> None:
        raise GoneError("changeset 5f5f is no longer in the repository")

    monkeypatch.setattr(pair.source, "changegroup", gone)
    result = pair.run((line, b""))
    assert result.failure is not None
    assert result.failure.kind is Kind.REMOVAL


def test_no_hook_runs(pair: Pair) -> None:
    (pair.root / "a/.hg/hgrc").write_text(
        "[hooks]\npretxnopen.no = false\npretxnchangegroup.no = false\n"
        "pretxnclose.no = false\ntxnclose.no = false\n"
    )
    pair.primary.push_commits()
    assert pair.run(*pair.primary.messages()).failure is None
    assert pair.is_equal()


def test_the_index_of_the_push_log_follows_on_the_mirror(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hgrc = tmp_path / "hgrc"
    hgrc.write_text(f"[extensions]\npushlog_index = {ROOT}/hgext/pushlog_index.py\n")
    monkeypatch.setenv("HGRCPATH", str(hgrc))
    for _number in range(40):
        pair.primary.push_commits()
    assert pair.run(*pair.primary.messages()).failure is None
    hg = pair.root / "a/.hg"
    covered = index_step.covered_bytes(str(hg / "cache" / index_step.NAME))
    assert 0 < covered <= (hg / "store/pushlog").stat().st_size < covered + index_step.STEP + 1024


def test_a_transaction_that_a_killed_process_left_is_undone(pair: Pair) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    first, second = pair.primary.messages()
    assert pair.run(first).failure is None
    store = pair.root / "a/.hg/store"
    size = (store / "pushlog").stat().st_size
    # The files that hg leaves when it is killed after it appended to the log.
    (store / "journal").write_bytes(b"pushlog\0%d\n" % size)
    with (store / "pushlog").open("ab") as log:
        log.write(second[0] + b"\n")
    result = pair.run(second)
    assert (result.failure, result.tip.id) == (None, 2)
    assert pair.is_equal()


def test_a_repository_that_is_not_there_is_waited_for(pair: Pair) -> None:
    pair.primary.push_commits()
    result = pair.run_at("missing", *pair.primary.messages())
    assert result.failure is not None
    assert result.failure.kind is Kind.MISSING


@pytest.mark.parametrize("has_log", [False, True])
def test_a_folder_of_another_repository_gets_no_record(pair: Pair, has_log: bool) -> None:
    """At the path that the registry names, before the folders have followed."""
    other = Primary(pair.root / "other", identity="ab" * 16)
    if has_log:
        other.push_commits()
    pair.primary.push_commits()
    before = state(other.path)
    for up_to_date in (False, True):
        pair.known = Known({pair.primary.identity: "other"})
        messages = () if up_to_date else pair.primary.messages()
        result = pair.run(*messages, up_to_date=up_to_date)
        assert result.failure is not None
        assert result.failure.kind is Kind.MISSING
        assert "got repository abab" in result.failure.reason
    assert state(other.path) == before


def test_a_repository_without_identity_gets_no_first_record(pair: Pair) -> None:
    create(pair.root / "unknown")
    pair.primary.push_commits()
    result = pair.run_at("unknown", *pair.primary.messages())
    assert result.failure is not None
    assert result.failure.kind is Kind.MISSING
    assert "without identity" in result.failure.reason


def test_a_folder_that_comes_to_the_path_of_an_open_repository_gets_no_record(pair: Pair) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    first, second = pair.primary.messages()
    assert pair.run(first).failure is None
    (pair.root / "a").rename(pair.root / "b")
    Primary(pair.root / "a", identity="ab" * 16)
    result = pair.run(second)
    assert result.failure is not None
    assert result.failure.kind is Kind.MISSING
    # Where the registry names it, it goes on.
    assert pair.run_at("b", second).failure is None
    assert state(pair.root / "b") == state(pair.primary.path)


def test_a_repository_of_the_release_before_is_known_by_its_push_log(pair: Pair) -> None:
    pair.primary.push_commits()
    pair.primary.push_commits()
    first, second = pair.primary.messages()
    assert pair.run(first).failure is None
    (pair.root / "a/.hg/store/identity").unlink()
    assert pair.run(second).failure is None
    assert pair.is_equal()

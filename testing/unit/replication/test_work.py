"""A worker of the applier without a source, and with a repository that was replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import HostError
from hgfleet.replication.mirror import worker as work
from hgfleet.replication.mirror.failures import Failure, Kind
from hgfleet.replication.mirror.jobs import Job, Task
from hgfleet.replication.mirror.worker import Worker, failure_of
from hgfleet.replication.repositories.registry_paths import Known
from hgfleet.replication.source.client import GoneError, RepositoryError

if TYPE_CHECKING:
    from pathlib import Path


A, B = "1f2e" * 8, "3d4c" * 8


class Paths:
    """The registry of the mirror."""

    def __init__(self, **paths: str) -> None:
        self.known = Known({identity: path for path, identity in paths.items()})

    def read(self) -> Known:
        return self.known


def worker_of(root: Path, repair: Any = None, paths: Paths | None = None) -> Worker:
    known_paths: Any = paths or Paths(a=A)
    return Worker(root, known_paths, None, repair)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The repositories that were opened; nothing of Mercurial is loaded."""
    places: list[Path] = []

    def open_repository(place: Path) -> Any:
        places.append(place)
        return SimpleNamespace(path=bytes(place / ".hg"), number=len(places))

    monkeypatch.setattr(work.apply, "open_repository", open_repository)
    monkeypatch.setattr(work.apply, "tip_of", lambda _repo: work.Tip())
    return places


def repair(worker: Worker) -> work.Result:
    return worker.run(Job(A, task=Task.REPAIR))


@pytest.mark.usefixtures("opened")
def test_a_host_without_a_source_cannot_repair(tmp_path: Path) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    failure = repair(worker_of(tmp_path)).failure
    assert failure is not None
    assert "no source to repair from" in failure.reason


@pytest.mark.usefixtures("opened")
def test_a_repair_is_done_by_the_source(tmp_path: Path) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    asked: list[str] = []
    assert repair(worker_of(tmp_path, asked.append)).failure is None
    assert asked == [A]


def test_a_repository_is_opened_once_and_again_when_another_took_its_place(
    tmp_path: Path, opened: list[Path]
) -> None:
    place = tmp_path / "a/.hg"
    place.mkdir(parents=True)
    paths = Paths(a=A)
    worker = worker_of(tmp_path, paths=paths)
    assert worker._open(A) is worker._open(A)
    assert opened == [tmp_path / "a"]
    place.rename(tmp_path / "former")
    place.mkdir()
    assert worker._open(A).number == 2
    # The registry is asked for its path each time.
    place.parent.rename(tmp_path / "b")
    paths.known = Known({A: "b"})
    assert worker._open(A).path == bytes(tmp_path / "b/.hg")


def test_a_repository_that_is_not_there_is_missing(tmp_path: Path, opened: list[Path]) -> None:
    (tmp_path / "a").mkdir()
    for identity, reason in ((A, "documents bring it"), (B, "names no repository in service")):
        failure = worker_of(tmp_path).run(Job(identity)).failure
        assert failure is not None
        assert failure.kind is Kind.MISSING
        assert reason in failure.reason
    assert opened == []


def test_what_the_source_says_of_one_repository_is_no_failure_of_the_host() -> None:
    assert failure_of(RepositoryError("500")).kind is Kind.REFUSED
    assert failure_of(GoneError("404")).kind is Kind.MISSING
    assert failure_of(ZeroDivisionError("x")).reason == "ZeroDivisionError: x"


def test_a_position_is_told_after_the_disk_has_it(
    tmp_path: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    order: list[str] = []

    def tip_of(_repo: object) -> work.Tip:
        order.append("position")
        return work.Tip(7, "h", A, 1, 1)

    monkeypatch.setattr(work.apply, "tip_of", tip_of)
    known: Any = Paths(a=A)
    worker = Worker(tmp_path, known, None, sync=lambda: order.append("synced"))
    assert worker.run(Job(A)).tip.id == 7
    assert order == ["position", "synced"]
    assert opened


@pytest.mark.usefixtures("opened")
def test_a_disk_that_does_not_confirm_is_a_failure_without_a_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    monkeypatch.setattr(work.apply, "tip_of", lambda _repo: work.Tip(7, "h", A, 1, 1))

    def sync() -> None:
        raise HostError("the disk does not confirm")

    known: Any = Paths(a=A)
    result = Worker(tmp_path, known, None, sync=sync).run(Job(A))
    assert result.tip == work.Tip()
    assert result.failure == Failure(Kind.HOST, "the disk does not confirm")

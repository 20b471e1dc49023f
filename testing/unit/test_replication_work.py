"""What a worker of the applier does without a source, and with a repository that was replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication import work
from hgfleet.replication.failures import Kind
from hgfleet.replication.jobs import Job, Task
from hgfleet.replication.work import Worker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The repositories that were opened; nothing of Mercurial is loaded."""
    found: list[Path] = []

    def open_repository(place: Path) -> Any:
        found.append(place)
        return SimpleNamespace(path=bytes(place / ".hg"), number=len(found))

    monkeypatch.setattr(work.apply, "open_repository", open_repository)
    monkeypatch.setattr(work.apply, "tip_of", lambda _repo: work.Tip())
    return found


def repair(worker: Worker) -> work.Result:
    return worker.run(Job("1f2e", "a", "there/a", task=Task.REPAIR))


@pytest.mark.usefixtures("opened")
def test_a_host_without_a_source_cannot_repair(tmp_path: Path) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    failure = repair(Worker(tmp_path, None)).failure
    assert failure is not None
    assert "no source to repair from" in failure.reason


@pytest.mark.usefixtures("opened")
def test_a_repair_is_done_by_the_source(tmp_path: Path) -> None:
    (tmp_path / "a/.hg").mkdir(parents=True)
    asked: list[tuple[str, str]] = []
    worker = Worker(tmp_path, None, lambda path, source: asked.append((path, source)))
    assert repair(worker).failure is None
    assert asked == [("a", "there/a")]


def test_a_repository_is_opened_once_and_again_when_another_took_its_place(
    tmp_path: Path, opened: list[Path]
) -> None:
    place = tmp_path / "a/.hg"
    place.mkdir(parents=True)
    worker = Worker(tmp_path, None)
    assert worker._open("a") is worker._open("a")
    assert opened == [tmp_path / "a"]
    place.rename(tmp_path / "former")
    place.mkdir()
    assert worker._open("a").number == 2


def test_a_repository_that_is_not_there_is_missing(tmp_path: Path, opened: list[Path]) -> None:
    (tmp_path / "a").mkdir()
    failure = Worker(tmp_path, None).run(Job("1f2e", "a", "there/a")).failure
    assert failure is not None
    assert failure.kind is Kind.MISSING
    assert opened == []

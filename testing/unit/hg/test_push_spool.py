"""Markers of pushes for the bundle jobs: none is lost, and no needless run begins."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg import push_spool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def never(_seconds: float) -> None:
    pytest.fail("there was nothing to wait for")


# --- when -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tried", "ready", "wait"),
    [
        ({}, ["a", "b"], 0),
        ({"a": 900}, ["a", "b"], 0),
        ({"a": 970}, ["b"], 30),
        ({"a": 970, "b": 950}, [], 10),
        ({"a": 940}, ["a", "b"], 0),
        # The clock was set back.
        ({"a": 5000}, ["a", "b"], 0),
        ({"c": 999}, ["a", "b"], 0),
    ],
)
def test_a_repository_has_a_run_every_so_often(
    tried: dict[str, float], ready: list[str], wait: float
) -> None:
    assert push_spool.due(["a", "b"], tried, now=1000, every=60) == (ready, wait)


# --- markers ----------------------------------------------------------------------------------


def test_a_marker_is_taken_once_and_a_push_meanwhile_leaves_another(spool: Path) -> None:
    push_spool.mark(str(spool), "team/project")
    push_spool.mark(str(spool), "team/project")
    assert names(spool) == ["team+project"]
    assert push_spool.take(spool) == ["team/project"]
    assert names(spool) == ["team+project+"]
    push_spool.mark(str(spool), "team/project")
    push_spool.done(spool, "team/project")
    assert push_spool.take(spool) == ["team/project"]
    push_spool.done(spool, "team/project")
    assert names(spool) == []


def test_markers_of_a_killed_run_are_taken_again(spool: Path) -> None:
    push_spool.mark(str(spool), "one")
    push_spool.take(spool)
    push_spool.mark(str(spool), "two")
    assert push_spool.take(spool) == ["one", "two"]


def test_a_file_that_is_no_marker_is_removed(spool: Path) -> None:
    for name in (".hidden", "-x", "a b", "a++", "+", "\u00e9"):
        (spool / name).touch()
    (spool / "folder!").mkdir()
    push_spool.mark(str(spool), "team/project")
    assert push_spool.take(spool) == ["team/project"]
    assert names(spool) == ["folder!", "team+project+"]


def test_a_link_in_the_spool_is_not_followed(spool: Path, tmp_path: Path) -> None:
    (spool / "team+project").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        push_spool.mark(str(spool), "team/project")
    assert not (tmp_path / "elsewhere").exists()


def test_marking_takes_no_time(spool: Path) -> None:
    start = time.perf_counter()
    for number in range(100):
        push_spool.mark(str(spool), f"team/project{number}")
    assert (time.perf_counter() - start) / 100 < 0.005


# --- runs -------------------------------------------------------------------------------------


def test_many_pushes_are_one_run(spool: Path, memory: Path) -> None:
    for path in ("b", "a", "b", "a", "a"):
        push_spool.mark(str(spool), path)
    runs: list[list[str]] = []

    def run(paths: list[str]) -> set[str]:
        runs.append(paths)
        return set()

    push_spool.work_off(spool, memory, 60, run, never)
    assert runs == [["a", "b"]]
    assert names(spool) == []
    push_spool.work_off(spool, memory, 60, run, never)
    assert len(runs) == 1


def test_a_push_during_a_run_has_a_run_of_its_own_but_later(spool: Path, memory: Path) -> None:
    push_spool.mark(str(spool), "a")
    runs: list[list[str]] = []
    pauses: list[float] = []

    def run(paths: list[str]) -> set[str]:
        if not runs:
            push_spool.mark(str(spool), "a")
        runs.append(paths)
        return set()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        os.utime(memory / "a", (time.time() - 60,) * 2)

    push_spool.work_off(spool, memory, 60, run, pause)
    assert runs == [["a"], ["a"]]
    assert pauses == [push_spool.LOOK_S]
    assert names(spool) == []


def test_a_repository_in_another_run_is_tried_again(spool: Path, memory: Path) -> None:
    push_spool.mark(str(spool), "team/a")
    push_spool.mark(str(spool), "b")
    runs: list[list[str]] = []

    def run(paths: list[str]) -> set[str]:
        assert "team+a+" in names(spool)
        runs.append(paths)
        return {"team/a"} if len(runs) == 1 else set()

    def pause(_seconds: float) -> None:
        assert names(spool) == ["team+a+"]
        os.utime(memory / "team+a", (time.time() - 60,) * 2)

    push_spool.work_off(spool, memory, 60, run, pause)
    assert runs == [["b", "team/a"], ["team/a"]]
    assert names(spool) == []


def test_a_failure_is_left_to_the_timer(spool: Path, memory: Path) -> None:
    push_spool.mark(str(spool), "a")

    def run(_paths: list[str]) -> set[str]:
        raise OSError("no store")

    with pytest.raises(OSError, match="no store"):
        push_spool.work_off(spool, memory, 60, run, never)
    assert names(spool) == []


def test_old_runs_are_forgotten(spool: Path, memory: Path) -> None:
    memory.mkdir()
    (memory / "gone").touch()
    os.utime(memory / "gone", (0, 0))
    push_spool.mark(str(spool), "a")
    push_spool.work_off(spool, memory, 60, lambda _: set(), never)
    assert names(memory) == ["a"]

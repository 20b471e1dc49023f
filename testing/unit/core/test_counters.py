"""Counters that many processes add to."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import counters, files

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES = 4
TIMES = 100


def add_often(folder: str) -> None:
    for _ in range(TIMES):
        while not counters.add(folder, "counts", {"one": 1, "seconds": 0.5}):
            pass


def test_no_count_of_processes_beside_each_other_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=add_often, args=(str(tmp_path),)) for _ in range(PROCESSES)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    counts = counters.parse((tmp_path / "counts").read_bytes())
    assert counts == {"one": PROCESSES * TIMES, "seconds": PROCESSES * TIMES / 2}


def test_counters_are_for_every_user_of_the_host(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert counters.add(str(tmp_path), "counts", {"one": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "counts").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "one 1",
        "one\n",
        "one x\n",
        "one nan\n",
        "one -1\n",
        "1\n",
        "\n",
        "\x00",
        "ü 1\n",
        "one 1\ntw",
    ],
)
def test_a_damaged_file_begins_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / "counts").write_text(damage)
    with pytest.raises(ValueError, match=r"could not convert|not a file of counters|codec"):
        counters.parse(damage.encode())
    assert counters.add(str(tmp_path), "counts", {"one": 2})
    assert (tmp_path / "counts").read_text() == "one 2\n"


def test_a_lock_that_is_held_costs_the_count_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "PATIENCE_S", 0.01)
    with files.open_folder(tmp_path) as held:
        assert files.try_lock(held)
        assert not counters.add(str(tmp_path), "counts", {"one": 1})
    assert not (tmp_path / "counts").exists()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        counters.add(str(tmp_path / "none"), "counts", {"one": 1})


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("one 5\n")
    (tmp_path / "counts").symlink_to("other")
    with pytest.raises(OSError, match="Too many levels"):
        counters.add(str(tmp_path), "counts", {"one": 1})


def test_durations_are_counted_by_their_upper_bound() -> None:
    total: dict[str, float] = {}
    for seconds in (0.05, 0.1, 0.3, 9.0, -1.0):
        for name, amount in counters.at_most(seconds, (0.1, 1.0), "login ").items():
            total[name] = total.get(name, 0) + amount
    assert total == {"login seconds": 9.45, "login at most 0.1 s": 3, "login at most 1 s": 1}
    assert counters.buckets(total, (0.1, 1.0), "login ") == ((0.1, 3), (1.0, 4))

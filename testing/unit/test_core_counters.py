"""Counters that many processes add to."""

from __future__ import annotations

import json
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
        while not counters.add(folder, "c.json", {"one": 1, "seconds": 0.5}):
            pass


def test_no_count_of_processes_beside_each_other_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=add_often, args=(str(tmp_path),)) for _ in range(PROCESSES)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    found = counters.parse((tmp_path / "c.json").read_bytes())
    assert found == {"one": PROCESSES * TIMES, "seconds": PROCESSES * TIMES / 2}


def test_counters_are_for_every_user_of_the_host(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert counters.add(str(tmp_path), "c.json", {"one": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "c.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", '{"one": "x"}', '{"one": true}', '{"one": NaN}', '{"one": -1}', "\x00"],
)
def test_a_damaged_file_begins_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / "c.json").write_text(damage)
    with pytest.raises(ValueError, match=r"Expecting|not a file of counters"):
        counters.parse(damage)
    assert counters.add(str(tmp_path), "c.json", {"one": 2})
    assert json.loads((tmp_path / "c.json").read_text()) == {"one": 2}


def test_a_lock_that_is_held_costs_the_count_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "PATIENCE_S", 0.01)
    with files.open_folder(tmp_path) as held:
        assert files.try_lock(held)
        assert not counters.add(str(tmp_path), "c.json", {"one": 1})
    assert not (tmp_path / "c.json").exists()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        counters.add(str(tmp_path / "none"), "c.json", {"one": 1})


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"one": 5}')
    (tmp_path / "c.json").symlink_to("other")
    with pytest.raises(OSError, match="Too many levels"):
        counters.add(str(tmp_path), "c.json", {"one": 1})

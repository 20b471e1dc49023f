from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.storage import work_folder

if TYPE_CHECKING:
    from pathlib import Path

HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("age", "kept", "is_read", "prune", "expected"),
    [
        (HOUR, 0, False, False, False),
        (HOUR, DAY, False, False, True),
        (2 * DAY, DAY, False, False, False),
        (HOUR, DAY, False, True, False),
        (HOUR, math.inf, False, True, False),
        (HOUR, 0, True, False, True),
        (HOUR, DAY, True, True, True),
        (2 * DAY, 0, True, False, False),
    ],
)
def test_an_old_store_stays_for_its_days_and_its_readers(
    age: float, kept: float, is_read: bool, prune: bool, expected: bool
) -> None:
    assert work_folder.stays(age, kept, is_read=is_read, prune=prune) is expected


def test_the_days_of_an_old_store_of_the_future_begin_now(tmp_path: Path) -> None:
    work = tmp_path / work_folder.WORK
    (work / ".hg/store").mkdir(parents=True)
    (since := work / work_folder.SINCE).touch()
    os.utime(since, (4e9, 4e9))
    assert not work_folder.remove_old(tmp_path, 60.0)
    assert since.stat().st_mtime < 4e9
    assert (work / ".hg/store").is_dir()

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.steps.check_times import RUNS, CheckTimes, first_mark, reads_per_run

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MONTH = timedelta(days=30)


def test_first_checks_are_spread_over_the_whole_time() -> None:
    marks = [first_mark(f"team+{number}", MONTH, NOW) for number in range(300)]
    assert all(NOW - MONTH <= mark <= NOW for mark in marks)
    days = {(NOW - mark).days for mark in marks}
    assert len(days) == 30


def test_a_check_is_due_once_in_its_time(tmp_path: Path) -> None:
    checks = CheckTimes(tmp_path / "checked", MONTH)
    assert not checks.due("team+project", NOW)
    due = [day for day in range(70) if checks.take("team+project", NOW + timedelta(days=day))]
    assert len(due) == 2
    assert due[1] - due[0] == 30


def test_a_check_that_failed_is_due_again_at_once(tmp_path: Path) -> None:
    checks = CheckTimes(tmp_path / "checked", MONTH)
    checks.due("project", NOW)
    later = NOW + MONTH
    assert checks.take("project", later)
    assert not checks.due("project", later)
    checks.again("project", later)
    assert checks.due("project", later)


def test_no_time_means_no_checks(tmp_path: Path) -> None:
    checks = CheckTimes(tmp_path / "checked", timedelta(0))
    assert not checks.due("project", NOW + timedelta(days=10_000))
    assert checks.last("project") is None


@pytest.mark.parametrize("age", [MONTH, timedelta(0)], ids=["a month", "never"])
def test_a_check_that_was_asked_for_is_due_until_it_is_done(tmp_path: Path, age: timedelta) -> None:
    checks = CheckTimes(tmp_path / "read", age)
    checks.request("project")
    for _ in range(2):
        assert checks.is_requested("project")
        assert checks.due("project", NOW)
    checks.done("project", NOW)
    assert not checks.is_requested("project")
    assert not checks.due("project", NOW)


@pytest.mark.parametrize("repositories", [0, 1, 23, 24, 25, 1000])
def test_all_get_a_turn_within_a_day_of_runs(repositories: int) -> None:
    share = reads_per_run(repositories)
    assert share * RUNS >= repositories
    assert (share - 1) * RUNS < max(1, repositories)


def test_a_check_of_the_future_is_none(tmp_path: Path) -> None:
    checks = CheckTimes(tmp_path / "checked", MONTH)
    checks.done("project", NOW + timedelta(days=900))
    assert any(checks.due("project", NOW + timedelta(days=days)) for days in range(32))
    # A run makes its checks later than it began.
    checks.done("project", NOW + timedelta(hours=9))
    assert not checks.due("project", NOW)

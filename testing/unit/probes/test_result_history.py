"""The history of a probe: results that it keeps, drops and counts, and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgfleet.probes import result_history
from hgfleet.probes.result_history import DAY_SECONDS, History, Result, Sum, add, date

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_598_185.0  # 2026-11-25, 09:16 UTC


def test_a_result_counts_in_total_and_on_its_day() -> None:
    kept = add(add(History(), Result(NOW, 0.5)), Result(NOW + 60, None))
    assert kept.total == Sum(1, 1, 0.5)
    assert kept.results == (Result(NOW, 0.5), Result(NOW + 60, None))
    assert kept.days == {"2026-11-25": Sum(1, 1, 0.5)}


def test_results_stay_for_a_day_and_sums_for_90() -> None:
    kept = History()
    for day in range(200):
        kept = add(kept, Result(NOW + day * DAY_SECONDS, 1.0))
    assert kept.results == (Result(NOW + 199 * DAY_SECONDS, 1.0),)
    assert len(kept.days) == result_history.DAYS
    assert min(kept.days) == date(NOW + 110 * DAY_SECONDS)
    assert kept.total == Sum(200, 0, 200.0)


def test_a_day_of_minutes_is_kept_whole() -> None:
    kept = History()
    for minute in range(2000):
        kept = add(kept, Result(NOW + minute * 60, 1.0))
    assert len(kept.results) == 1440


def test_results_of_the_future_are_dropped() -> None:
    """A clock was a year ahead; else its results would stay for a year."""
    ahead = add(History(), Result(NOW + 366 * DAY_SECONDS, 1.0))
    kept = add(ahead, Result(NOW, 2.0))
    assert kept.results == (Result(NOW, 2.0),)
    assert set(kept.days) == {"2026-11-25"}
    assert kept.total == Sum(2, 0, 3.0)


times = st.floats(NOW - 400 * DAY_SECONDS, NOW + 400 * DAY_SECONDS)


@given(st.lists(st.tuples(times, st.none() | st.floats(0, 50)), max_size=60))
def test_the_bounds_hold_for_any_clock_and_the_file_keeps_a_history(
    results: list[tuple[float, float | None]],
) -> None:
    kept = History(uploaded=NOW)
    for time, seconds in results:
        kept = add(kept, Result(round(time, 3), None if seconds is None else round(seconds, 3)))
    assert len(kept.days) <= result_history.DAYS
    assert kept.total.attempts == len(results)
    assert list(kept.results) == sorted(kept.results, key=lambda result: result.time)
    read = result_history.parse(result_history.dump(kept))
    assert (read.results, read.days.keys()) == (kept.results, kept.days.keys())
    assert (read.total.succeeded, read.total.failed) == (kept.total.succeeded, kept.total.failed)
    assert result_history.dump(read) == result_history.dump(kept)


def test_a_host_without_a_file_has_an_empty_history(tmp_path: Path) -> None:
    assert result_history.load(tmp_path, result_history.PUSH) == History()
    result_history.save(add(History(), Result(NOW, 1.0)), tmp_path, result_history.PUSH)
    assert result_history.load(tmp_path, result_history.PUSH) == add(History(), Result(NOW, 1.0))
    assert result_history.load(tmp_path, result_history.CLONE) == History()
    assert (tmp_path / "push.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2}',
        '{"format": 1}',
        result_history.dump(History()).replace("{}", "7"),
        result_history.dump(add(History(), Result(NOW, 1.0))).replace("2026-11-25", "<b>"),
        result_history.dump(add(History(), Result(NOW, 1.0))).replace(
            '"results": [[', '"results": [7, ['
        ),
    ],
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        result_history.parse(text)

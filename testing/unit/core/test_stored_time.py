from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hgfleet.core.stored_time import NEVER, SLACK_SECONDS, age, is_future, past, past_moment

NOW = 1_000_000.0


@pytest.mark.parametrize("stored", [NOW + SLACK_SECONDS + 1, 4e9, float("inf"), float("nan")])
def test_a_time_from_the_future_is_never(stored: float) -> None:
    assert is_future(stored, NOW)
    assert past(stored, NOW) == NEVER
    assert age(stored, NOW) == float("inf")


def test_a_clock_that_is_a_little_behind_changes_nothing() -> None:
    assert past(NOW + SLACK_SECONDS, NOW) == NOW + SLACK_SECONDS
    assert age(NOW + SLACK_SECONDS, NOW) == 0.0
    assert past(NOW - 5, NOW) == NOW - 5
    assert age(NOW - 5, NOW) == 5.0


def test_the_caller_names_another_slack_for_a_clock_of_its_own() -> None:
    assert not is_future(NOW + 500, NOW, 600.0)
    assert is_future(NOW + 2, NOW, 1.0)


def test_moments_are_read_likewise() -> None:
    now = datetime(2026, 11, 24, tzinfo=UTC)
    soon = now + timedelta(seconds=SLACK_SECONDS)
    assert past_moment(soon, now) == soon
    assert past_moment(soon + timedelta(seconds=1), now) == datetime(1970, 1, 1, tzinfo=UTC)

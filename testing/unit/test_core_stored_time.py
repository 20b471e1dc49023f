from __future__ import annotations

import pytest

from hgfleet.core.stored_time import NEVER, SLACK_SECONDS, age, is_future, past

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

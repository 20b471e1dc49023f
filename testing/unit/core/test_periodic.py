"""When the next work of a periodic service begins."""

from __future__ import annotations

import pytest

from hgfleet.core.daemons.periodic import due


@pytest.mark.parametrize(
    ("begun", "now", "seconds"), [(100.0, 101.5, 58.5), (100.0, 160.0, 0.0), (100.0, 190.0, 0.0)]
)
def test_work_begins_an_interval_after_the_last_one_began(
    begun: float, now: float, seconds: float
) -> None:
    assert due(begun, 60.0, now) == seconds

from __future__ import annotations

import math

import pytest

from hgfleet.storage import place

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
    assert place.stays(age, kept, is_read=is_read, prune=prune) is expected

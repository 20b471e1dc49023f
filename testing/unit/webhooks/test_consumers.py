"""The events that the daemon of the release before has taken."""

from __future__ import annotations

import pytest

from hgfleet.webhooks.consumers import CLOCK_SECONDS, Taken

SINCE = 1000.0
LATER = SINCE + CLOCK_SECONDS


@pytest.mark.parametrize(
    ("number", "published", "expected"),
    [
        (7, LATER, True),
        (8, LATER, False),
        # The event came before that daemon began, and has waited since.
        (3, SINCE - 1, False),
        # By another broker's clock it may have come before.
        (5, SINCE + 1, False),
    ],
)
def test_events_that_came_after_it_began_and_that_it_acknowledged_are_taken(
    number: int, published: float, *, expected: bool
) -> None:
    assert Taken("stream", SINCE, 8).has(number, published) is expected

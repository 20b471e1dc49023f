"""Times that were stored and are read back: a time from the future counts as never. Pure.

Such times come from a clock that ran ahead and was set back, from a damaged file, or from an
intruder. Taken as they are, they would be newer than any other time: a check done in 2099 would
never be due again, and the alert about its age would never fire.

Hot paths import this module, so it imports nothing at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

SLACK_SECONDS: Final = 60.0
"""How far ahead of the reader's clock a time may be: clocks are corrected by seconds, and the
writer may be another host, whose clock differs by as much."""

NEVER: Final = 0.0


def is_future(stored: float, now: float, slack: float = SLACK_SECONDS) -> bool:
    """Whether a time is ahead of the reader's clock, or is no number."""
    return not stored <= now + slack


def past(stored: float, now: float, slack: float = SLACK_SECONDS) -> float:
    """Return a stored time in seconds since 1970; `NEVER` for a time from the future."""
    return NEVER if is_future(stored, now, slack) else stored


def age(stored: float, now: float, slack: float = SLACK_SECONDS) -> float:
    """Return how long ago a stored time was, in seconds; infinite for a time from the future."""
    return float("inf") if is_future(stored, now, slack) else max(0.0, now - stored)


def past_moment(stored: datetime, now: datetime, slack: float = SLACK_SECONDS) -> datetime:
    """Return a stored moment; the begin of 1970 for a moment from the future."""
    if not is_future(stored.timestamp(), now.timestamp(), slack):
        return stored
    return stored.fromtimestamp(NEVER, stored.tzinfo)

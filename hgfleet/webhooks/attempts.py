"""Decisions about attempts to deliver an event: the request, its result, the next attempt. Pure."""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from hgfleet import __version__

if TYPE_CHECKING:
    from hgfleet.replication.protocol.events import Event

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 600.0
"""Seconds between attempts, doubled each time, and their maximum, within which a receiver that is
back gets its events."""

_RETRIED: Final = frozenset({408, 429})
"""Temporary refusals: the request was too slow, or there were too many requests."""


class Verdict(StrEnum):
    """The result of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"


def verdict(status: int) -> Verdict:
    """Judge the status of an answer. A redirect fails until an operator corrects the URL."""
    if 200 <= status < 300:
        return Verdict.DELIVERED
    if 400 <= status < 500 and status not in _RETRIED:
        return Verdict.DEAD
    return Verdict.RETRY


def pause(attempts: int, jitter: float) -> float:
    """Return the seconds until the next attempt, given the attempts so far; `jitter` is 0 to 1.

    Half of the pause is random, so that deliveries that failed together are not repeated together.
    """
    longest = min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 32), LONGEST_PAUSE)
    return longest * (0.5 + 0.5 * jitter)


def next_attempt(
    received: float, now: float, attempts: int, jitter: float, retry_seconds: float
) -> float | None:
    """Return the time of the next attempt, or None if the delivery is given up.

    The time counts from the arrival of the event, so events that waited behind a dead event of
    their repository do not get the whole time again.
    """
    due = now + pause(attempts, jitter)
    return due if due <= received + retry_seconds else None


def headers(event: Event, secret: bytes, now: float) -> dict[str, str]:
    """Return the headers of a request, except for the headers of HTTP itself."""
    timestamp = str(int(now))
    return {
        "Content-Type": "application/json",
        "User-Agent": f"hgfleet/{__version__}",
        "X-Hgfleet-Event": "push",
        "X-Hgfleet-Delivery": event.id,
        "X-Hgfleet-Timestamp": timestamp,
        "X-Hgfleet-Signature-256": f"sha256={signature(secret, timestamp, event.body)}",
    }


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return HMAC-SHA256 of the timestamp, a dot and the body, hexadecimal."""
    return hmac.new(secret, timestamp.encode("ascii") + b"." + body, hashlib.sha256).hexdigest()

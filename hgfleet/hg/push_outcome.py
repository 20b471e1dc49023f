"""How pushes end: the reasons of refusals and failures, and the counts that metrics are made of.

An extension that refuses a push records the reason here, as a word of `REASONS`, and
`hgext/pushcounts.py` counts the push. A process serves a single session, so the reason is a
variable of the process. No text of a client, of a repository or of a person gets into a count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import counters

if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSED: Final = (
    "access",
    "read-only",
    "policies",
    "quota",
    "parts",
    "mirror",
    "replaced",
    "limits",
    "malformed",
    "invalid",
    "raced",
    "disconnected",
)
"""Reasons that the pusher, or the inventory, has to do something about."""

FAILED: Final = (
    "fenced",
    "pushlog",
    "unrecorded",
    "uncopied",
    "policies-failed",
    "disk",
    "memory",
    "locked",
    "error",
)
"""Reasons that are faults of the service."""

REASONS: Final = (*REFUSED, *FAILED)

ENDS: Final = {
    "spool": "limits",
    "disk": "disk",
    "malformed": "malformed",
    "too-long": "malformed",
    "changed": "replaced",
    "too-old": "limits",
    "stalled": "disconnected",
    "idle": "disconnected",
    "disconnected": "disconnected",
}
"""Reasons of pushes by the reason of the end of a session (`hg.incoming.SessionEndError`)."""

BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram of durations, in seconds. A small push takes some tenths."""

FILE: Final = "pushes"
"""The file of the counts, in the folder of counters."""

_ACCEPTED: Final = "accepted"
_PREFIX: Final = "accepted "
_recorded: str | None = None


def record(reason: str) -> None:
    """Record why this push does not go on; the first reason stays."""
    global _recorded
    if _recorded is None:
        _recorded = reason if reason in REASONS else "error"


def take() -> str | None:
    """Return the recorded reason, and forget it."""
    global _recorded
    reason, _recorded = _recorded, None
    return reason


def counts(reason: str | None, seconds: float) -> dict[str, float]:
    """Return the counts that a push adds; `reason` is None for an accepted push. Pure."""
    if reason is not None:
        return {reason: 1}
    return {_ACCEPTED: 1, **counters.at_most(seconds, BUCKETS, _PREFIX)}


@dataclass(frozen=True, slots=True)
class Pushes:
    """Pushes to this host since it started."""

    accepted: float
    refused: Mapping[str, float]
    """By reason; a reason of every kind is there, with 0."""
    failed: Mapping[str, float]
    seconds: float
    """Sum of the durations of accepted pushes."""
    buckets: tuple[tuple[float, float], ...]
    """Accepted pushes that took at most so many seconds."""


def of(data: Mapping[str, float]) -> Pushes:
    """Return the pushes of the counts; other words in them are ignored. Pure."""
    return Pushes(
        accepted=float(data.get(_ACCEPTED, 0)),
        refused={reason: float(data.get(reason, 0)) for reason in REFUSED},
        failed={reason: float(data.get(reason, 0)) for reason in FAILED},
        seconds=float(data.get(f"{_PREFIX}seconds", 0)),
        buckets=counters.buckets(data, BUCKETS, _PREFIX),
    )

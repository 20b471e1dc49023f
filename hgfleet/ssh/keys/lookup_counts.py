"""Counts of key lookups by their result, for metrics.

`hgfleet-keys` adds to them after its answer, as the user of the lookup, in a folder that only this
user can write. It runs twice at each login, so this module imports nothing slow. The words are the
reasons of `authorized_keys`; no text of a client or of a person gets into a count.
"""

from __future__ import annotations

from hgfleet.core import counters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

FOLDER: Final = "/run/hgfleet-lookups"
FILE: Final = "lookups"

ALLOWED: Final = "ok"
DENIED: Final = (
    "question",
    "type",
    "unknown",
    "ambiguous",
    "disabled",
    "name",
    "directory-key",
    "groups",
    "host-certificate",
    "principals",
    "critical-option",
    "not-yet-valid",
    "expired",
)
"""Reasons that are faults of the key, the certificate or the person's entry."""

FAILED: Final = ("unavailable", "configuration", "crash")
"""Reasons that are faults of the service: users with good keys are locked out."""

REASONS: Final = (ALLOWED, *DENIED, *FAILED)

BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram of durations, in seconds, without the start of Python."""

PATIENCE_S: Final = 0.05
"""How long a lookup waits for the counters; sshd waits for the lookup."""


def counts(reason: str, seconds: float) -> dict[str, float]:
    """Return the counts that a lookup adds. Pure."""
    known = reason if reason in REASONS else "crash"
    return {known: 1.0, **counters.at_most(seconds, BUCKETS)}


def add(reason: str, seconds: float, folder: str = FOLDER) -> str | None:
    """Count a lookup; return why it could not be counted, or None. Never raises."""
    return counters.try_add(folder, FILE, counts(reason, seconds), patience=PATIENCE_S)


class Lookups:
    """Lookups of this host since it started, of every reason, 0 included."""

    def __init__(self, data: Mapping[str, float]) -> None:
        self.by_reason = {reason: float(data.get(reason, 0)) for reason in REASONS}
        self.count = sum(self.by_reason.values())
        self.seconds = float(data.get("seconds", 0))
        self.buckets = counters.buckets(data, BUCKETS)

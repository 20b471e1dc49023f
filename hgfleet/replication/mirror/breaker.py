"""Circuit breaker: many failures of different repositories in a row pause a mirror. Pure.

A broken repository is parked, without harm to others. When several repositories fail in a row, the
host, the network or the release is the cause, and each further try may do harm. After a pause a
single repository is tried: its success ends the pause, its failure doubles the next pause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

THRESHOLD: Final = 5
"""Number of different repositories that fail without a success in between."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Breaker:
    """`now` is a monotonic time in seconds."""

    threshold: int = THRESHOLD
    failed: set[str] = field(default_factory=set)
    pause_seconds: float = 0.0
    until: float = 0.0
    trying: bool = False
    """Whether a repository is being tried after a pause."""

    def succeeded(self) -> None:
        """Record a success: the pause is over."""
        self.failed.clear()
        self.pause_seconds = 0.0
        self.until = 0.0
        self.trying = False

    def failure(self, repository: str, now: float) -> None:
        """Record a failure of a repository."""
        self.failed.add(repository)
        self.trying = False
        if len(self.failed) < self.threshold or now < self.until:
            return
        doubled = self.pause_seconds * 2 or FIRST_PAUSE_SECONDS
        self.pause_seconds = min(doubled, LONGEST_PAUSE_SECONDS)
        self.until = now + self.pause_seconds

    @property
    def is_open(self) -> bool:
        """Whether the mirror is paused, or tries a repository after a pause."""
        return self.until > 0

    def may_start(self, now: float) -> bool:
        """Whether a repository may be worked on; after a pause, only one at a time."""
        if not self.is_open:
            return True
        return now >= self.until and not self.trying

    def started(self) -> None:
        """Record that work on a repository began."""
        self.trying = self.is_open

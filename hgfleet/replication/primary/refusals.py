"""Messages that the broker refuses although it is connected: their repositories and reasons."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Refusals:
    """The repositories, by identity, whose last message the broker has refused.

    Each is tried again until its message is accepted, or nothing is left to send.
    """

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._reasons: dict[str, str] = {}
        self.began = 0.0
        """When the broker began to refuse, by the monotonic clock."""

    @property
    def reason(self) -> str:
        """Why the broker refused the last message; empty if no message waits for it."""
        return next(reversed(self._reasons.values()), "")

    def note(self, repository: str, reason: str) -> None:
        """Record that the broker refused a message of a repository."""
        if not self._reasons:
            self.began = time.monotonic()
        if self.reason != reason:
            self._say("refused", reason=reason)
        self._reasons.pop(repository, None)
        self._reasons[repository] = reason

    def end(self, repository: str) -> None:
        """Record that no message of a repository waits for the broker."""
        self._reasons.pop(repository, None)

    def clear(self) -> None:
        """Record that the broker accepted a message, or is another broker."""
        self._reasons.clear()

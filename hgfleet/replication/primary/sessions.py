"""Sessions of pushes: the relay names them to mirrors, so that their log lines have the same id.

A session names itself when it wakes the relay. If it is killed before, the relay does not know it,
and the log lines of its push name only the push.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 4096
"""Pushes whose sessions are remembered. A push is published soon after the call of its session, or
later while brokers are down."""


class Sessions:
    """The ids of the sessions of the newest pushes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ids: OrderedDict[tuple[str, int], str] = OrderedDict()

    def note(self, repository: str, number: int, session: str) -> None:
        """Remember the session of a push, by the identity of its repository and its number."""
        if session:
            self._ids[repository, number] = session
            while len(self._ids) > self._most:
                self._ids.popitem(last=False)

    def of(self, repository: str, number: int) -> str:
        """Return the id of the session of a push; empty if it is not known."""
        return self._ids.get((repository, number), "")

"""Sessions of pushes: the relay names them to mirrors, so that their log lines have the same id.

A session names itself when it wakes the relay. The relay of a session that was killed before does
not know it; the log lines of such a push have the push alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 4096
"""Pushes whose sessions are remembered; a push is published within a moment of its session's call,
or, while brokers are down, later."""


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
        """Return the id of the session of a push, an empty text if it is not known."""
        return self._ids.get((repository, number), "")

r"""Regular expressions whose search is bounded in time and text.

An operator writes the expression, but even a harmless expression (`(\w+ ?)+:`) can take years on a
text that a client made for it. So a search covers only the beginning of a long text, and an alarm
clock ends it; Python's engine checks for signals while it searches.
"""

from __future__ import annotations

import re
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

MAX_TEXT: Final = 10_000
"""Characters that are searched. A long commit message has 2,000."""

SECONDS: Final = 1.0
"""A search for an honest text takes microseconds."""


class SearchTimeoutError(Exception):
    """The search did not end in time; the caller must not take that for a match."""


class Pattern:
    """A compiled expression whose search is bounded; dot fits line ends too."""

    __slots__ = ("_compiled",)

    def __init__(self, expression: str) -> None:
        self._compiled = re.compile(expression, re.DOTALL)

    def fits(self, text: str) -> bool:
        """Whether the beginning of the text matches; for patterns that end by themselves."""
        if not self._compiled.pattern:
            return True
        return _bounded(self._compiled.match, text)

    def is_in(self, text: str) -> bool:
        """Whether the expression is found anywhere in the first MAX_TEXT characters."""
        return _bounded(self._compiled.search, text[:MAX_TEXT])


def _bounded(search: object, text: str) -> bool:
    assert callable(search)
    # A signal handler belongs to the main thread; there a session of hg runs its hooks.
    if threading.current_thread() is not threading.main_thread():
        return search(text) is not None

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SearchTimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return search(text) is not None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

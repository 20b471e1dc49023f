"""The tests that failed at first and ran once more, with the reason of the first failure. Pure."""

from __future__ import annotations

from typing import Final

from controller.tests.outcome import Failure, excerpt
from testing.support.repeated import MARK

MOST_LINES: Final = 20
"""Of a first failure in the summary; the log has the rest."""


class Repeats:
    """Collects the repeated tests of a step from the lines of its log."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._under_way = ""

    def begin(self, test: str) -> None:
        """Record a test that runs once more: the lines after MARK that follow are its reason.

        A test that fails, and again while it cleans up, runs once more: that counts once.
        """
        self._lines.setdefault(test, [])
        self._under_way = test

    def line(self, line: str) -> bool:
        """Take a line of the log, if it belongs to the reason of the test under way."""
        if self._under_way and line.startswith(MARK.rstrip()):
            self._lines[self._under_way].append(line.removeprefix(MARK.rstrip())[1:])
            return True
        self._under_way = ""
        return False

    def found(self) -> list[Failure]:
        """Return the repeated tests, each with the part of its first failure that names it."""
        return [Failure(test, excerpt(lines, MOST_LINES)) for test, lines in self._lines.items()]

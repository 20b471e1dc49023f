"""The path that a person most likely meant, among those that the person may read."""

from __future__ import annotations

import difflib
import heapq
from typing import TYPE_CHECKING, Final

from hgfleet.core.names import MAX_PATH_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_COMPARED: Final = 20
"""Paths that are compared in full, which takes 0.1 ms each."""

LEAST_ALIKE: Final = 0.6
"""The least ratio of `difflib`, which is also its own default."""


def likely(asked: str, paths: Iterable[str]) -> str | None:
    """Return the path that is most like the one asked for, or None.

    The beginning and the end that a path shares with it choose the few that are compared in full: a
    mistake of a few neighbouring characters leaves them as they are.
    """
    asked = asked[:MAX_PATH_LENGTH].lower()
    if not asked:
        return None
    candidates = heapq.nlargest(MOST_COMPARED, ((_shared(asked, path), path) for path in paths))
    compared = [
        (difflib.SequenceMatcher(None, path, asked).ratio(), path) for _, path in candidates
    ]
    ratio, path = max(compared, default=(0.0, ""))
    return path if ratio >= LEAST_ALIKE else None


def _shared(one: str, other: str) -> float:
    """Return the share of characters that two texts have in common at both ends."""
    shorter = min(len(one), len(other))
    start = 0
    while start < shorter and one[start] == other[start]:
        start += 1
    end = 0
    while end < shorter - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return (start + end) / (len(one) + len(other))

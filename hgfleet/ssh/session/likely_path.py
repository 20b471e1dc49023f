"""The path that a person most likely meant, among those that the person may read."""

from __future__ import annotations

import difflib
import heapq
from typing import TYPE_CHECKING, Final

from hgfleet.core.names import MAX_PATH_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_COMPARED: Final = 20
"""The number of paths that are compared in full; a comparison takes 0.1 ms."""

LEAST_ALIKE: Final = 0.6
"""The least ratio of `difflib` for a match, which is also the default of `difflib`."""


def likely(asked: str, paths: Iterable[str]) -> str | None:
    """Return the path that is most similar to the requested path, or None.

    The paths that share the longest beginning and end with the requested path are compared in full:
    a mistake of a few neighbouring characters leaves the beginning and the end as they are.
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


def _shared(text: str, other: str) -> float:
    """Return the share of characters that two texts have in common at both ends."""
    shorter = min(len(text), len(other))
    start = 0
    while start < shorter and text[start] == other[start]:
        start += 1
    end = 0
    while end < shorter - start and text[-1 - end] == other[-1 - end]:
        end += 1
    return (start + end) / (len(text) + len(other))

"""The same work for several items at the same time, each in a thread of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def each(items: Iterable[str], work: Callable[[str], T]) -> dict[str, T | HgfleetError]:
    """Do the work for each item; an HgfleetError is the result of the item that raised it."""

    def guarded(item: str) -> T | HgfleetError:
        try:
            return work(item)
        except HgfleetError as error:
            return error

    items = list(items)
    if len(items) == 1:
        return {items[0]: guarded(items[0])}
    with ThreadPoolExecutor(max(1, len(items)), "bundles") as pool:
        return dict(zip(items, pool.map(guarded, items), strict=True))

"""A mapping whose values are made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class OnDemand(Mapping[str, _T]):
    """A mapping that makes its values on demand and leaves out those that fail, ordered by key."""

    def __init__(self, data: Mapping[str, Any], make: Callable[[str, Any], _T | None]) -> None:
        self._data = data
        self._make = make
        self._made: dict[str, _T | None] = {}
        self._keys: list[str] | None = None

    def __getitem__(self, key: str) -> _T:
        if key not in self._made:
            self._made[key] = self._make(key, self._data[key])
        value = self._made[key]
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._data and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        if self._keys is None:
            self._keys = sorted(key for key in self._data if self.get(key) is not None)
        return iter(self._keys)

    def __len__(self) -> int:
        iter(self)
        return len(self._keys or ())

    def take_over(self, other: OnDemand[_T], changed: set[str]) -> None:
        """Take over the values that another mapping has made, except values of the changed keys."""
        # A copy in one step: other threads may make values of it at the same time.
        self._made = dict(other._made)
        for key in changed:
            self._made.pop(key, None)
        if other._keys is not None:
            added = [key for key in changed if key in self]
            self._keys = sorted([key for key in other._keys if key not in changed] + added)

"""Cache of complete answers, bounded in bytes; the least recently used goes first."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

OVERHEAD: Final = 512
"""Bytes counted for an entry besides its objects: places in tables, rounding of the allocator."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response.

    `parts` is the body, cut where the nonce of its Content-Security-Policy stood: each time it is
    given, a fresh nonce goes there. `log` has the log fields of every request for it.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    parts: tuple[bytes, ...]
    has_nonce: bool = False
    etag: str = ""
    log: Mapping[str, object] = field(default_factory=dict)


def bytes_of(key: Hashable, answer: Answer) -> int:
    """Bytes that an entry counts: the client chooses the length of the key as well as the body."""
    return OVERHEAD + _deep_size(key) + _deep_size(answer)


def _deep_size(value: object) -> int:
    """Bytes of a value of texts, numbers, tuples, lists, mappings and dataclasses."""
    size = sys.getsizeof(value)
    if isinstance(value, (tuple, list)):
        return size + sum(map(_deep_size, value))
    if isinstance(value, Mapping):
        return size + sum(_deep_size(name) + _deep_size(item) for name, item in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, each.name) for each in dataclasses.fields(value))
        return size + sum(map(_deep_size, parts))
    return size


class AnswerCache:
    """Safe in threads. Keys hold everything that an answer depends on, so nothing expires.

    Keys count like bodies: clients fill them with queries and headers of their choice.
    """

    def __init__(self, capacity: int, largest: int) -> None:
        """Hold up to `capacity` bytes, no answer of more than `largest` (both in bytes)."""
        self.capacity = capacity
        self.largest = min(largest, capacity)
        self._answers: OrderedDict[Hashable, tuple[Answer, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = 0

    def get(self, key: Hashable) -> Answer | None:
        """Return the answer stored under the key, or None."""
        with self._lock:
            entry = self._answers.get(key)
            if entry is None:
                return None
            self._answers.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, answer: Answer) -> bool:
        """Store an answer unless it is too large or not a success; say whether it was stored."""
        if answer.status != 200:
            return False
        size = bytes_of(key, answer)
        if size > self.largest:
            return False
        with self._lock:
            _, replaced = self._answers.pop(key, (None, 0))
            self._answers[key] = answer, size
            self._bytes += size - replaced
            while self._bytes > self.capacity:
                _, (_, oldest) = self._answers.popitem(last=False)
                self._bytes -= oldest
        return True

    @property
    def size(self) -> int:
        """Bytes counted at the moment."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._answers)

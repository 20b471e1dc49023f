"""Cache of complete answers, bounded in bytes; the least recently used goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

OVERHEAD: Final = 1024
"""Bytes counted for an entry besides its body: key, headers, objects (a rough mean)."""


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

    @property
    def size(self) -> int:
        """Bytes that the answer counts in the cache."""
        return OVERHEAD + sum(map(len, self.parts))


class AnswerCache:
    """Safe in threads. Keys hold everything that an answer depends on, so nothing expires."""

    def __init__(self, capacity: int, largest: int) -> None:
        """Hold up to `capacity` bytes, no answer of more than `largest` (both in bytes)."""
        self.capacity = capacity
        self.largest = min(largest, capacity)
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = 0

    def get(self, key: Hashable) -> Answer | None:
        """Return the answer stored under the key, or None."""
        with self._lock:
            answer = self._answers.get(key)
            if answer is not None:
                self._answers.move_to_end(key)
            return answer

    def put(self, key: Hashable, answer: Answer) -> bool:
        """Store an answer unless it is too large or not a success; say whether it was stored."""
        if answer.size > self.largest or answer.status != 200:
            return False
        with self._lock:
            replaced = self._answers.pop(key, None)
            if replaced is not None:
                self._bytes -= replaced.size
            self._answers[key] = answer
            self._bytes += answer.size
            while self._bytes > self.capacity:
                _, oldest = self._answers.popitem(last=False)
                self._bytes -= oldest.size
        return True

    @property
    def size(self) -> int:
        """Bytes counted at the moment."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._answers)

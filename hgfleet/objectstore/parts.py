"""Parts of multipart uploads: the parts of an unfinished upload, and a bound on their memory."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


PART: Final = 64 * 1024 * 1024
"""Bytes of a part of a multipart upload, and the largest upload in a single request. A part is held
in memory. S3 takes at most 10,000 parts, so larger bundles get larger parts."""

MAX_PARTS: Final = 10_000

MAX_IN_FLIGHT: Final = 4 * PART
"""Bytes of parts in memory at the same time, of all uploads to all stores together.

Stores and repositories are worked on in parallel, so without a bound their parts would not fit into
memory.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a multipart upload; `sha256` is in base64, as in S3."""

    number: int
    etag: str
    sha256: str
    size: int


def reusable(parts: Iterable[Part], number: int, data: bytes, sha256: str) -> Part | None:
    """Find the part of an unfinished upload that has this very content."""
    for part in parts:
        if part.number == number and part.size == len(data) and part.sha256 == sha256:
            return part
    return None


class BytesGate:
    """A bound on the bytes that threads hold at the same time.

    A holder of more than the bound is admitted when there is no other holder, or it would wait
    forever.
    """

    def __init__(self, limit: int) -> None:
        self.held = 0
        self._limit = limit
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Wait until there is room for `size` bytes, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: not self.held or self.held + size <= self._limit)
            self.held += size
        try:
            yield
        finally:
            with self._changed:
                self.held -= size
                self._changed.notify_all()


PARTS_IN_FLIGHT = BytesGate(MAX_IN_FLIGHT)

"""Room for a fork: reserved for its owner and on the disk before the copy begins.

The copy is expected to be as large as its source. Its size is checked again while it grows and when
it is complete, so a source that gets pushes during the copy is no way past the quota.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core.errors import AccessDeniedError, HostError, TemporaryError
from hgfleet.registry.dynamic import repository_sizes, size_reservations
from hgfleet.registry.dynamic.size_reservations import Reserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.registry.dynamic.size_reservations import Owner, Reservation
    from hgfleet.selfservice.context import Context


class ForkSize:
    """The expected and the reserved size of a fork."""

    def __init__(self, context: Context, path: str, expected: int) -> None:
        """Only `reserved` makes it, and reserves the size."""
        self.expected = expected
        self._context, self._path = context, path
        self._reserved = expected
        self._folder = size_reservations.folder_of(context.dynamic)
        self._reservation: Reservation | None = None

    def reserve(self) -> int:
        """Reserve the expected size; return the descriptor whose lock is the reservation."""
        with self._locked() as lock:
            others = size_reservations.to_be_written(self._folder)
            _check_disk(self._context, self.expected, others)
            self._check_quota(lock, self.expected)
            self._reservation = lock.reserve(Reserved(self.expected, 0, self._path))
        return self._reservation.descriptor

    def check(self, new: Path) -> int:
        """Return the size of the copy now; raise a refusal if there is no room for it."""
        size = repository_sizes.measured(new)
        _check_disk(self._context, 0, 0)
        assert self._reservation is not None
        if size > self._reserved:
            with self._locked() as lock:
                self._check_quota(lock, size)
                self._reserved = size
                self._reservation.note(Reserved(size, size, self._path))
        else:
            self._reservation.note(Reserved(self._reserved, size, self._path))
        return size

    def release(self) -> None:
        """End the reservation: the fork is registered, or given up."""
        if self._reservation is not None:
            self._reservation.release()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Owner]:
        try:
            with size_reservations.locked(self._folder, self._context.principal.name) as lock:
                yield lock
        except OSError as problem:
            raise HostError(f"{self._folder}: {problem.strerror}") from problem

    def _check_quota(self, lock: Owner, size: int) -> None:
        owner, allowed = self._context.principal, self._context.size_quota
        owned = repository_sizes.owned(self._context.dynamic, owner)
        used = repository_sizes.total(Path(self._context.root), owned)
        used += lock.reserved(owned, self._reservation)
        if refusal := repository_sizes.refusal(owner.name, used, size, allowed):
            raise AccessDeniedError(_sentence(refusal))


@contextlib.contextmanager
def reserved(context: Context, path: str, source: Path) -> Iterator[ForkSize]:
    """Reserve room for a copy of the source until the end of the block.

    Raises AccessDeniedError above the quota of the person, TemporaryError where the disk is full.
    """
    size = ForkSize(context, path, repository_sizes.measured(source))
    descriptor = size.reserve()
    context.inherited.append(descriptor)
    try:
        yield size
    finally:
        context.inherited.remove(descriptor)
        size.release()


def _check_disk(context: Context, size: int, others: int) -> None:
    """Refuse a copy that leaves less free space than pushes leave."""
    status = os.statvfs(context.root)
    free = status.f_bavail * status.f_frsize
    if refusal := repository_sizes.disk_refusal(size, free, others, context.disk_free):
        raise TemporaryError(_sentence(refusal))


def _sentence(refusal: str) -> str:
    return f"{refusal[0].upper()}{refusal[1:]}."

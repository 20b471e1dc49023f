"""Check times: when each repository had a check that only some runs make, and when it is due.

Two checks are rare because each reads a whole repository: `hg verify` of a clone, and a download of
every published bundle.
"""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hgfleet.core import stored_time

if TYPE_CHECKING:
    from pathlib import Path

RUNS: Final = 24
"""Runs over which due reads are spread: a day of the hourly timer."""

RUN_SECONDS: Final = 86_400.0
"""A run lasts for less than a day: a time later than its beginning by more is from the future."""

_REQUESTED: Final = datetime.fromtimestamp(0, UTC)
_TAKING: Final = threading.Lock()


def first_mark(name: str, age: timedelta, now: datetime) -> datetime:
    """Return the time of the last check for a repository that has none yet. Pure.

    The time follows from the name, so a new scratch folder does not make all checks due at once.
    """
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    return now - share * age


def reads_per_run(repositories: int) -> int:
    """Return the number of repositories that a run reads, however many are due. Pure.

    After a time without runs, all are due. `RUNS` runs read all of them, no single run takes long,
    and the next reads are spread again.
    """
    return -(-repositories // RUNS)


@dataclass(frozen=True, slots=True)
class CheckTimes:
    """The time of a check of each repository, as the mtime of a file.

    `age` is the time between two checks; with zero, only requested checks are due.
    """

    folder: Path
    age: timedelta

    def due(self, name: str, now: datetime) -> bool:
        """Whether the check of a repository is due; a time from the future does not count."""
        last = self.last(name)
        if last == _REQUESTED:
            return True
        if not self.age:
            return False
        if last is None or stored_time.is_future(last.timestamp(), now.timestamp(), RUN_SECONDS):
            last = first_mark(name, self.age, now)
            self._mark(name, last)
        return now >= last + self.age

    def last(self, name: str) -> datetime | None:
        """Return the time of the last check, or None before the first."""
        try:
            return datetime.fromtimestamp((self.folder / name).stat().st_mtime, UTC)
        except OSError:
            return None

    def take(self, name: str, now: datetime) -> bool:
        """Whether the check is due; if so, it is no longer due for any other thread."""
        with _TAKING:
            if not self.due(name, now):
                return False
            self._mark(name, now)
            return True

    def done(self, name: str, now: datetime) -> None:
        """Record that the check was made."""
        self._mark(name, now)

    def request(self, name: str) -> None:
        """Make the check due at once and out of order: a bundle was found to be wrong."""
        self._mark(name, _REQUESTED)

    def is_requested(self, name: str) -> bool:
        """Whether a check was requested and is not done."""
        return self.last(name) == _REQUESTED

    def again(self, name: str, now: datetime) -> None:
        """Make the check due at once: it was not completed."""
        self._mark(name, now - self.age)

    def _mark(self, name: str, when: datetime) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).touch()
        os.utime(self.folder / name, (when.timestamp(), when.timestamp()))

"""What hg said of a repository, reused for as long as the repository's files are untouched.

Asking hg costs a process, 0.2 s; asking the file system costs microseconds. A run over a thousand
repositories of which a few were pushed to should cost what those few cost.

The state is a function of the files that `hgfleet.hg.fingerprint` watches and of the published
tips that were asked about. Both are stored with it; whatever does not fit is as good as nothing
stored, so the folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.plan import State
from hgfleet.core.files import replace

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from hgfleet.hg import fingerprint as files

FORMAT: Final = 2
"""Raised whenever `State`, or the question that hg is asked for it, changes."""

_TAKING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class StateCache:
    """The folder of what is known, a file for each repository."""

    folder: Path

    def get(self, name: str, seen: files.State, tips: Collection[str]) -> State | None:
        """Return the state that was remembered for exactly these files and tips, if any was."""
        try:
            stored = json.loads((self.folder / name).read_text("utf-8"))
            if stored["for"] != _question(seen, tips):
                return None
            return State(
                heads=frozenset(stored["heads"]),
                tip=stored["tip"],
                changesets=stored["changesets"],
                covered=stored["covered"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            # Never stored, not ours to read, or half of it on the disk after a power cut.
            return None

    def put(self, name: str, seen: files.State, tips: Collection[str], state: State) -> None:
        """Store what hg said; `seen` are the files as they were before it was asked.

        A change while hg was looking is in the answer already, or makes the files look different
        next time. Only one within the clock's tick before it would go unnoticed, and files that
        young are not remembered.
        """
        if not seen.is_settled() or not state.exists:
            return
        self.folder.mkdir(exist_ok=True)
        stored = {
            "for": _question(seen, tips),
            "heads": sorted(state.heads),
            "tip": state.tip,
            "changesets": state.changesets,
            "covered": dict(state.covered),
        }
        replace(self.folder / name, json.dumps(stored), mode=0o640, durable=False)


def _question(seen: files.State, tips: Collection[str]) -> list[object]:
    """What an answer belongs to, in the form it has after a round trip through JSON."""
    signatures = [None if one is None else list(one) for one in seen.signatures]
    return [FORMAT, signatures, sorted(tips)]


def first_mark(name: str, age: timedelta, now: datetime) -> datetime:
    """Say when a repository shall count as checked of which nothing is remembered. Pure.

    It depends on the name, so that not all are due at once when the scratch folder is new.
    """
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    return now - share * age


RUNS: Final = 24
"""Runs in which everything can be read once, if all of it is due: a day of the hourly timer."""


def reads_per_run(repositories: int) -> int:
    """Say how many of so many repositories one run reads, however many are due. Pure.

    After a time without runs all are due. They get their turns within `RUNS` runs, which no run is
    long for, and which spreads them again for the next time.
    """
    return -(-repositories // RUNS)


_ASKED: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Checks:
    """When each repository was last checked in some way: the mtime of a file each.

    `age` is the time from one check to the next; zero means that there are none, but for those that
    are asked for.
    """

    folder: Path
    age: timedelta

    def due(self, name: str, now: datetime) -> bool:
        """Whether it is time to check a repository."""
        last = self.last(name)
        if last == _ASKED:
            return True
        if not self.age:
            return False
        if last is None:
            last = first_mark(name, self.age, now)
            self._mark(name, last)
        return now >= last + self.age

    def last(self, name: str) -> datetime | None:
        """Return when a repository was checked, or counts as checked; None if it never did."""
        try:
            return datetime.fromtimestamp((self.folder / name).stat().st_mtime, UTC)
        except OSError:
            return None

    def take(self, name: str, now: datetime) -> bool:
        """Whether it is time; if so, it no longer is for any other thread."""
        with _TAKING:
            if not self.due(name, now):
                return False
            self._mark(name, now)
            return True

    def done(self, name: str, now: datetime) -> None:
        """Note that a repository was checked."""
        self._mark(name, now)

    def ask(self, name: str) -> None:
        """Make a check due at once and out of turn: something was found to be wrong."""
        self._mark(name, _ASKED)

    def is_asked(self, name: str) -> bool:
        """Whether a check was asked for and is not done."""
        return self.last(name) == _ASKED

    def again(self, name: str, now: datetime) -> None:
        """Make a check due at once: it was not carried through."""
        self._mark(name, now - self.age)

    def _mark(self, name: str, when: datetime) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).touch()
        os.utime(self.folder / name, (when.timestamp(), when.timestamp()))

"""Storage upgrade of one repository: a new store beside the old one, compared, then exchanged.

Runs in a process of its own (`hgfleet.storage.worker`).
"""

from __future__ import annotations

import json
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mercurial import error, verify

from hgfleet.core import files
from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.storage import exchange, formats, place
from hgfleet.storage.measure import Times, measure
from hgfleet.storage.opened import create_repository, open_repository, wanted
from hgfleet.storage.revlogs import DamagedError, RevlogCopier, RewrittenError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Say = Callable[..., None]

TRIES: Final = 3
"""Copies that are begun again because revisions were removed from the source meanwhile."""

ROUNDS: Final = 5
"""Rounds of copying new pushes before the lock is taken for the last one."""


@dataclass(frozen=True, slots=True)
class Options:
    """`keep_seconds` is the time that an old store stays; None: until its last reader ends."""

    measure: bool = True
    keep_seconds: float | None = None


def upgrade(repository: Path, options: Options, say: Say) -> dict[str, Any]:
    """Bring one repository to the current format; return figures of before and after.

    Raises HgfleetError, and then the repository is as it was. May be killed at any point.
    """
    control = repository / ".hg"
    with place.claimed(control):
        place.remove(control / place.AWAY)
        goal = wanted()
        if wrong := formats.problem(goal):
            raise HostError(wrong)
        decision = formats.decide(place.requirements(control), goal)
        if decision.action is formats.Action.REFUSE:
            raise HostError("; ".join(decision.reasons))
        if decision.action is formats.Action.CURRENT:
            return {"changed": False, "removed": place.remove_old(control, options.keep_seconds)}
        place.check_exchange(control)
        try:
            figures = _Rebuild(repository, goal, decision, options, say).run()
        except error.LockError as problem:
            raise TemporaryError(f"another process keeps it locked: {_text(problem)}") from problem
        except (error.Error, error.StorageError) as problem:
            raise DamagedError(f"Mercurial says: {_text(problem)}") from problem
        return figures | {"removed": place.remove_old(control, options.keep_seconds)}


def _text(problem: BaseException) -> str:
    return bytes(str(problem), "utf-8", "replace").decode("utf-8", "replace")


class _Rebuild:
    """The upgrade of one repository."""

    def __init__(
        self,
        repository: Path,
        goal: frozenset[str],
        decision: formats.Decision,
        options: Options,
        say: Say,
    ) -> None:
        self.repository, self.goal, self.options, self.say = repository, goal, options, say
        self.control = repository / ".hg"
        self.folder = self.control / place.WORK
        self.copier = RevlogCopier(decision.missing, say)
        self.locked: list[float] = []
        self.measured: list[float] = []

    def run(self) -> dict[str, Any]:
        started = time.monotonic()
        before = place.measure(self.control / "store")[0]
        times = self._measure(self.repository, "measure-before")
        for left in reversed(range(TRIES)):
            try:
                resumed = self._load()
                if not resumed:
                    self._build()
                after_times = self._measure(self.folder, "measure-after")
                self._swap()
                break
            except RewrittenError:
                place.remove(self.folder)
                if not left:
                    raise TemporaryError(
                        "history was removed from it again and again while it was copied"
                    ) from None
                self.say("again", text="history was removed meanwhile; begins again")
        after = place.measure(self.control / "store")[0]
        return {
            "changed": True,
            "resumed": resumed,
            "size_before": before,
            "size_after": after,
            "before": times,
            "after": after_times,
            "seconds": time.monotonic() - started,
            "measured_seconds": self.measured,
            "locked_seconds": max(self.locked),
        }

    def _measure(self, repository: Path, phase: str) -> dict[str, float] | None:
        if not self.options.measure:
            return None
        self.say("phase", phase=phase)
        began = time.monotonic()
        times: Times = measure(open_repository(repository))
        self.measured.append(time.monotonic() - began)
        return times._asdict()

    def _load(self) -> bool:
        """Take up a new store that a killed run has completed; False if there is none."""
        try:
            found = json.loads((self.folder / place.COMPLETE).read_text("utf-8"))
            if found["goal"] == sorted(self.goal):
                self.copier.signatures = found["signatures"]
                return True
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        place.remove(self.folder)
        return False

    def _build(self) -> None:
        """Copy everything, catch up once under the lock, and verify the copy."""
        self.say("phase", phase="copy")
        self.copier.signatures = {}
        source = open_repository(self.repository)
        self.folder.mkdir(mode=stat.S_IMODE(self.control.stat().st_mode))
        target = create_repository(self.folder)
        self.copier.catch_up(source, target, may_tear=True)
        self._with_lock(lambda source: self.copier.catch_up(source, open_repository(self.folder)))
        self.say("phase", phase="verify")
        self._verify()
        done = {"goal": sorted(self.goal), "signatures": self.copier.signatures}
        place.sync(self.folder)
        files.replace(self.folder / place.COMPLETE, json.dumps(done))

    def _with_lock(self, work: Callable[[Any], object]) -> None:
        """Do the work while no other process writes to the repository."""
        source = open_repository(self.repository)
        with source.wlock(), source.lock():
            began = time.monotonic()
            if (self.control / "store/journal").exists():
                raise HostError(
                    f"a transaction was interrupted; run `hg recover -R {self.repository}` first"
                )
            work(source)
            self.locked.append(time.monotonic() - began)

    def _verify(self) -> None:
        """Check the hash of every revision of the new store, then run `hg verify` on it."""
        target = open_repository(self.folder)
        self.copier.check(target)
        target.ui.pushbuffer(error=True)
        failed = verify.verify(target)
        said = target.ui.popbuffer().decode("utf-8", "replace")
        if failed:
            raise DamagedError(
                f"hg verify finds the repository damaged, so it was left as it is: {said[-800:]}"
            )

    def _swap(self) -> None:
        self.say("phase", phase="swap")
        for _ in range(ROUNDS):
            # Most new revisions are copied while pushes go on.
            source, target = open_repository(self.repository), open_repository(self.folder)
            if not self.copier.catch_up(source, target, may_tear=True):
                break
        self._with_lock(self._swap_locked)

    def _swap_locked(self, source: Any) -> None:
        last = self.copier.catch_up(source, open_repository(self.folder))
        self.copier.compare(source, open_repository(self.folder), last)
        exchange.exchange(self.repository, source)

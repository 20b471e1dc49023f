"""Storage upgrade of a repository: a new store next to the old, compared, then exchanged.

Runs in a process of its own (`hgfleet.storage.worker`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mercurial import error

from hgfleet.core import durable, files, identity
from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.hg.opened_place import OpenedPlace
from hgfleet.storage import repository_formats, store_exchange, work_folder
from hgfleet.storage.measure import Times, measure
from hgfleet.storage.opened import create_repository, open_repository, wanted
from hgfleet.storage.revlogs import DamagedError, RevlogCopier, RewrittenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Notify = Callable[..., None]

TRIES: Final = 3
"""Copies that start over because revisions were removed from the source during the copy."""

ROUNDS: Final = 5
"""Rounds of copying new pushes before the lock is taken, and tries with little left under it."""

LOCKED_REVISIONS: Final = 500
"""Revisions to copy under the lock; if there are more, pushes go on for another round."""


@dataclass(frozen=True, slots=True)
class Options:
    """`keep_seconds` is how long an old store stays; None: until its last reader ends.

    `prune` removes an old store before the time that an earlier run gave it.
    """

    measure: bool = True
    keep_seconds: float | None = None
    prune: bool = False
    identity: str = ""
    """Identity of the repository that is to be upgraded; "" for any repository at the path."""

    def remove_old(self, control: Path) -> bool:
        """Delete the old store of a current repository; False if it has to stay for now."""
        return work_folder.remove_old(control, self.keep_seconds, prune=self.prune)


def upgrade(repository: Path, options: Options, notify: Notify) -> dict[str, Any]:
    """Move a repository to the current format; return figures of before and after.

    Raises HgfleetError, and then the repository is as it was. May be killed at any point.
    """
    control = repository / ".hg"
    # Held open from here on: the repository may be renamed, and another one take its path.
    opened = OpenedPlace(os.fsencode(control))
    if other := identity.problem(repository, options.identity):
        raise TemporaryError(other)
    with work_folder.claimed(control):
        work_folder.remove(control / work_folder.AWAY)
        goal = wanted()
        if wrong := repository_formats.problem(goal):
            raise HostError(wrong)
        decision = repository_formats.decide(work_folder.requirements(control), goal)
        if decision.action is repository_formats.Action.REFUSE:
            raise HostError("; ".join(decision.reasons))
        if decision.action is repository_formats.Action.CURRENT:
            return {"changed": False, "removed": options.remove_old(control)}
        work_folder.check_exchange(control)
        try:
            # Before the first write: else another process may hear of the loss of these writes.
            with durable.Disk(control) as disk:
                figures = _Rebuild(opened, repository, goal, decision, options, notify, disk).run()
        except error.LockError as problem:
            raise TemporaryError(f"another process keeps it locked: {_text(problem)}") from problem
        except (error.Error, error.StorageError) as problem:
            raise DamagedError(f"Mercurial says: {_text(problem)}") from problem
        return figures | {"removed": options.remove_old(control)}


def _text(problem: BaseException) -> str:
    return bytes(str(problem), "utf-8", "replace").decode("utf-8", "replace")


class _DamagedCopyError(Exception):
    """The new store cannot be read or differs, and was not exchanged yet."""


@contextlib.contextmanager
def _damaged_copy() -> Iterator[None]:
    try:
        yield
    except error.LockError:
        raise
    except DamagedError as problem:
        raise _DamagedCopyError(str(problem)) from problem
    except (error.Error, error.StorageError) as problem:
        raise _DamagedCopyError(f"Mercurial says: {_text(problem)}") from problem


class _Rebuild:
    """The upgrade of a repository."""

    def __init__(
        self,
        opened: OpenedPlace,
        repository: Path,
        goal: frozenset[str],
        decision: repository_formats.Decision,
        options: Options,
        notify: Notify,
        disk: durable.Disk,
    ) -> None:
        self.opened, self.disk = opened, disk
        self.repository, self.goal, self.options, self.notify = repository, goal, options, notify
        self.control = repository / ".hg"
        self.folder = self.control / work_folder.WORK
        self.copier = RevlogCopier(decision.missing, notify, self._save_again)
        self.locked: list[float] = []
        self.measured: list[float] = []

    def run(self) -> dict[str, Any]:
        started = time.monotonic()
        before = work_folder.measure(self.control / "store")[0]
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
                work_folder.remove(self.folder)
                if not left:
                    raise TemporaryError(
                        "history was removed from it again and again while it was copied"
                    ) from None
                self.notify("again", text="history was removed during the copy; starts over")
            except _DamagedCopyError as problem:
                # A later run would resume this copy, and fail in the same way.
                work_folder.remove(self.folder)
                if not resumed or not left:
                    raise DamagedError(str(problem)) from problem
                self.notify("again", text=f"the copy of a killed run is damaged: {problem}")
        after = work_folder.measure(self.control / "store")[0]
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
        self.notify("phase", phase=phase)
        began = time.monotonic()
        times: Times = measure(open_repository(repository))
        self.measured.append(time.monotonic() - began)
        return times._asdict()

    def _load(self) -> bool:
        """Resume a new store that a killed run has completed; False if there is none.

        The run may have been killed in a transaction. Its changes are rolled back, or the new store
        is made again.
        """
        try:
            state = json.loads((self.folder / work_folder.COMPLETE).read_text("utf-8"))
            if state["goal"] == sorted(self.goal):
                self.copier.signatures = state["signatures"]
                self.copier.verified = state["verified"]
                self.copier.settled = state["settled"]
                self._recover()
                return True
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        except (DamagedError, error.Error, error.StorageError, OSError) as problem:
            self.notify("again", text=f"the copy of a killed run is damaged: {_text(problem)}")
        work_folder.remove(self.folder)
        return False

    def _recover(self) -> None:
        """Roll back the transaction of a killed run in the new store. Raises errors of hg."""
        control = self.folder / ".hg"
        # Only an upgrade locks the new store, and this process is the only upgrade.
        for lock in (control / "wlock", control / "store/lock"):
            lock.unlink(missing_ok=True)
        if (control / "store/journal").exists():
            target = open_repository(self.folder)
            target.ui.pushbuffer(error=True)
            target.recover()
            if said := target.ui.popbuffer().decode("utf-8", "replace").strip():
                raise DamagedError(said)

    def _save(self) -> None:
        """Record the state of the new store, so that the next run can resume it after a kill."""
        copier = self.copier
        done = {
            "goal": sorted(self.goal),
            "signatures": copier.signatures,
            "verified": copier.verified,
            "settled": copier.settled,
        }
        files.replace(self.folder / work_folder.COMPLETE, json.dumps(done))

    def _save_again(self) -> None:
        if (self.folder / work_folder.COMPLETE).exists():
            self._save()

    def _build(self) -> None:
        """Copy everything, catch up once under the lock, and verify the copy."""
        self.notify("phase", phase="copy")
        self.copier.signatures, self.copier.verified, self.copier.settled = {}, {}, {}
        self.folder.mkdir(mode=stat.S_IMODE(self.control.stat().st_mode))
        create_repository(self.folder)
        self._catch_up(compares=False, work=lambda _: None)
        self.notify("phase", phase="verify")
        self._verify()
        work_folder.sync(self.disk)
        self._save()

    def _verify(self) -> None:
        self.copier.verify(open_repository(self.repository), open_repository(self.folder))

    def _swap(self) -> None:
        self.notify("phase", phase="swap")
        work_folder.keep_for(self.folder, self.options.keep_seconds)
        self._catch_up(
            compares=True,
            work=lambda source: store_exchange.exchange(self.repository, source, self.disk),
        )

    def _catch_up(self, *, compares: bool, work: Callable[[Any], object]) -> None:
        """Copy new revisions while pushes go on, the last of them under the lock; do the work.

        While pushes come faster than they are copied, the lock is given back for another round.
        """

        def finish(source: Any, *, is_last: bool) -> bool:
            target = open_repository(self.folder)
            if not is_last and self.copier.pending(source, target) > LOCKED_REVISIONS:
                return False
            with _damaged_copy():
                entries = self.copier.catch_up(source, target)
                if compares:
                    self.copier.compare(source, open_repository(self.folder), entries)
            work(source)
            return True

        # The lock should be held for a moment only. So copy without it until no new revisions come,
        # and then take it. If many revisions came before the lock was free, give it back and begin
        # another round: pushes must not wait for their copy. The last round copies them anyway.
        for left in reversed(range(ROUNDS)):
            for _ in range(ROUNDS):
                if not self._copy_unlocked(compares=compares):
                    break
            if self._with_lock(functools.partial(finish, is_last=not left)):
                return

    def _copy_unlocked(self, *, compares: bool) -> bool:
        """Copy new revisions while pushes go on; return whether there were any."""
        with _damaged_copy():
            source, target = open_repository(self.repository), open_repository(self.folder)
            entries = self.copier.catch_up(source, target, may_tear=True)
            if entries and compares:
                self.copier.compare(source, open_repository(self.folder), entries, may_tear=True)
            return bool(entries)

    def _with_lock(self, work: Callable[[Any], bool]) -> bool:
        """Do the work while no other process writes to the repository; return its result."""
        source = open_repository(self.repository)
        with source.wlock(), source.lock():
            began = time.monotonic()
            # A rename holds the lock.
            if not self.opened.is_there():
                raise TemporaryError(
                    f"{self.repository} was renamed, archived or replaced during the upgrade; the "
                    "next run upgrades it at its new path"
                )
            if (self.control / "store/journal").exists():
                raise HostError(
                    f"a transaction was interrupted; run `hg recover -R {self.repository}` first"
                )
            done = work(source)
            self.locked.append(time.monotonic() - began)
        return done

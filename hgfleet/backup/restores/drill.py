"""Drill: a sample of repositories is restored to a sandbox, verified, compared and removed.

A drill proves that the newest backup of a repository can be restored, or it fails. If it fails,
older backups are tried only to show how much would be lost now.
"""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING, Final

from hgfleet.backup import run_records
from hgfleet.backup.point.capture import PUSHLOG
from hgfleet.backup.restores import restore
from hgfleet.core import stored_time
from hgfleet.core.errors import HgfleetError, HostError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.backup.restic.restic import Restic, Snapshot
    from hgfleet.backup.restic.settings import Settings
    from hgfleet.backup.restores.restore import Restored
    from hgfleet.backup.run_records import Data
    from hgfleet.core.report import Report


TURN_DAYS: Final = 28
"""Within this number of daily drills each repository has its turn, however many there are."""


def sample(
    backed_up: Collection[str], drills: Mapping[str, Data], least: int, now: float
) -> list[str]:
    """Choose the repositories of a drill, in their order. Pure.

    All repositories whose last drill failed come first, each day until a drill succeeds. The
    repositories follow whose backups were restored longest ago or never; a time from the future
    counts as never.
    """
    size = max(least, math.ceil(len(backed_up) / TURN_DAYS))

    def last(path: str) -> tuple[float, str]:
        return stored_time.past(float(drills.get(path, {}).get("time", 0.0)), now), path

    again = [path for path in backed_up if "error" in drills.get(path, {})]
    others = [path for path in backed_up if "error" not in drills.get(path, {})]
    return sorted(again, key=last) + sorted(others, key=last)[:size]


def drill(settings: Settings, restic: Restic, report: Report, paths: Iterable[str]) -> list[str]:
    """Restore the newest backup of each repository; return the repositories that failed.

    Raises UnavailableError if the store does not answer: this proves nothing about a backup, so the
    records of former drills stay.
    """
    sandbox = settings.state / "drill"
    known = run_records.load(settings.state, run_records.RUNS).get("repositories", {})
    drills = run_records.load(settings.state, run_records.DRILLS)
    failed = []
    for path in paths:
        started = time.time()
        backup = known.get(path, {})
        identity = str(backup.get("identity", ""))
        result: Data = {"time": started, "identity": identity}
        attempt = _Attempt(settings, restic, restore.Wanted(path, identity), sandbox / path)
        shutil.rmtree(sandbox, ignore_errors=True)
        try:
            restored = attempt.newest(int(backup.get("push_id", 0)))
            result |= _proven(restored)
        except UnavailableError:
            raise
        except HgfleetError as error:
            result |= {"error": str(error)}
            if attempt.older is not None:
                result |= _proven(attempt.older)
            failed.append(path)
            report.step("drill-failed", path, str(error), error=str(error))
        else:
            seconds = time.time() - started
            report.step(
                "drill",
                path,
                f"restored and verified up to push {restored.point.push_id} in {seconds:.1f} s",
                push=restored.point.push_id,
                changesets=restored.point.changesets,
                seconds=seconds,
            )
        finally:
            shutil.rmtree(sandbox, ignore_errors=True)
        drills[path] = result
        run_records.save(settings.state, run_records.DRILLS, drills)
    return failed


def _proven(restored: Restored) -> Data:
    return {
        "push_id": restored.point.push_id,
        "push_hash": restored.point.push_hash,
        "log_end": restored.point.sizes.get(PUSHLOG, 0),
        "changesets": restored.point.changesets,
        "snapshot": restored.snapshot.id,
    }


class _Attempt:
    """The drill of a repository; if its newest backup fails, `older` is restored from another."""

    def __init__(
        self, settings: Settings, restic: Restic, wanted: restore.Wanted, target: Path
    ) -> None:
        self._settings, self._restic = settings, restic
        self._wanted, self._target = wanted, target
        self.older: Restored | None = None

    def newest(self, expected: int) -> Restored:
        """Restore the newest backup, which has at least the push that the last run recorded.

        Raises HostError with the reason, and with the newest older backup that could be restored,
        of the backups that were tried.
        """
        snapshots = self._restic.snapshots()
        attempts = restore.Attempts(self._settings, self._restic, self._wanted, self._target)
        newest = next(attempts.points(snapshots), None)
        if newest is None:
            attempts.end()
        snapshot, point = newest
        # If a backup was passed over before this backup, it was newer.
        is_newest = not attempts.reasons
        restored = attempts.first([newest])
        if restored is not None and is_newest:
            if point.push_id >= expected:
                return restored
            self.older = restored
            raise HostError(
                f"the newest backup in the store is of {snapshot.time[:19]} up to push "
                f"{point.push_id}, expected a backup up to push {expected}, as the last run "
                "recorded: backups are missing in the store"
            )
        reasons = list(attempts.reasons)
        self.older = restored or self._restorable(snapshots, snapshot)
        if self.older is None:
            end = "no older backup that was tried can be restored"
        else:
            end = (
                f"an older backup can, of {self.older.snapshot.time[:19]} up to push "
                f"{self.older.point.push_id}"
            )
        raise HostError(f"its newest backup cannot be restored: {'; '.join(reasons)}; {end}")

    def _restorable(self, snapshots: Sequence[Snapshot], newest: Snapshot) -> Restored | None:
        """Restore an older backup; as few as possible are tried."""
        after = snapshots.index(newest) + 1
        control = str(self._settings.repositories / self._wanted.path / ".hg")
        older = list(restore.candidates(snapshots[after:], control))
        attempts = restore.Attempts(self._settings, self._restic, self._wanted, self._target)
        return attempts.first(attempts.points(spread(older)))


def spread(older: Sequence[Snapshot]) -> list[Snapshot]:
    """Choose some of the older backups, newest first, with growing gaps. Pure.

    A diagnosis thus restores few of a hundred backups: numbers 1, 2, 4, 8 and so on, and the
    oldest.
    """
    places = [2**number - 1 for number in range(len(older).bit_length())]
    return [older[place] for place in places if place < len(older) - 1] + list(older[-1:])

"""Drill: a sample of repositories is restored to a sandbox, verified, compared and removed."""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING, Final

from hgfleet.backup import record, restore
from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hgfleet.backup.record import Data
    from hgfleet.backup.restic import Restic
    from hgfleet.backup.settings import Settings
    from hgfleet.core.report import Report


TURN_DAYS: Final = 28
"""In so many daily drills each repository has its turn, however many there are."""


def sample(backed_up: Collection[str], drills: Mapping[str, Data], least: int) -> list[str]:
    """Choose the repositories whose backups were restored longest ago, or never."""
    size = max(least, math.ceil(len(backed_up) / TURN_DAYS))
    return sorted(backed_up, key=lambda path: (drills.get(path, {}).get("time", 0.0), path))[:size]


def drill(settings: Settings, restic: Restic, report: Report, paths: Iterable[str]) -> list[str]:
    """Restore the newest backup of each repository; return those whose restore failed."""
    sandbox = settings.state / "drill"
    known = record.load(settings.state, record.RUNS).get("repositories", {})
    identities = {path: one.get("identity", "") for path, one in known.items()}
    shutil.rmtree(sandbox, ignore_errors=True)
    drills = record.load(settings.state, record.DRILLS)
    failed = []
    for path in paths:
        started = time.time()
        target = sandbox / path
        found: Data = {"time": started, "identity": identities.get(path, "")}
        try:
            wanted = restore.Wanted(path, identities.get(path, ""))
            restored = restore.restore(settings, restic, wanted, target)
            found |= {
                "push_id": restored.point.push_id,
                "changesets": restored.point.changesets,
                "snapshot": restored.snapshot.id,
            }
        except HgfleetError as error:
            found["error"] = str(error)
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
        drills[path] = found
        record.save(settings.state, record.DRILLS, drills)
    return failed

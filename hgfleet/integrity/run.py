"""Run of the verifications of a night."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hgfleet.backup.point import consistency
from hgfleet.core import files, identity
from hgfleet.core.errors import HostError, TemporaryError, UsageError
from hgfleet.integrity import plan, state
from hgfleet.integrity.check import check
from hgfleet.integrity.plan import Checked
from hgfleet.storage import work_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hgfleet.core.report import Report


@dataclass(frozen=True, slots=True)
class Outcome:
    """All corrupt repositories, with the reason, and those that this run could not verify."""

    corrupt: dict[str, str]
    failed: list[str]


def run(root: Path, folder: Path, report: Report, days: int, paths: Sequence[str] = ()) -> Outcome:
    """Verify the repositories of tonight, or the named repositories.

    The state is saved after each repository, so a run that is ended loses nothing. Raises
    TemporaryError if another run is under way, UsageError for an unknown path.
    """
    with files.open_folder(folder) as opened:
        if not files.try_lock(opened):
            raise TemporaryError("another verification of this host is under way; try again later")
        known = state.load(folder)
        known.days = days
        known.repositories = _present(root, known.repositories)
        if unknown := [path for path in paths if path not in known.repositories]:
            raise UsageError(f"no repository on this host: {', '.join(unknown)}")
        now, failed = time.time(), []
        for path in paths or plan.tonight(known.repositories, days=days, now=now):
            try:
                result = _verified(root, path, known.repositories[path], report)
            except TemporaryError as busy:
                # Its days go on, and `status` names it once they are over.
                report.step("busy", path, str(busy), problem=str(busy))
                continue
            except HostError as problem:
                report.step("failed", path, str(problem), problem=str(problem))
                failed.append(path)
                continue
            if result is None:
                known.repositories.pop(path)
            else:
                known.repositories[path] = result
            state.save(known, folder)
        if not paths:
            known.ended = time.time()
        state.save(known, folder)
        return Outcome(plan.corrupt(known.repositories), failed)


def _present(root: Path, known: dict[str, Checked]) -> dict[str, Checked]:
    """Return the state of the existing repositories; the days of a new repository begin now."""
    now = time.time()
    controls = dict(sorted(consistency.find(root)))
    identities = {path: identity.of(control.parent) for path, control in controls.items()}
    carried = plan.carried(known, identities)
    return {
        path: carried.get(path)
        or Checked(
            seen=now, size=work_folder.measure(control / "store")[0], identity=identities[path]
        )
        for path, control in controls.items()
    }


def _verified(root: Path, path: str, known: Checked, report: Report) -> Checked | None:
    """Verify a repository; None if it is gone, or if another repository has its path.

    Raises TemporaryError and HostError.
    """
    started = time.time()
    control = root / path / ".hg"
    error = check(root / path)
    is_another = known.identity and identity.of(root / path) != known.identity
    if is_another or (error and not control.is_dir()):
        return None
    seconds = time.time() - started
    if error:
        report.step("corrupt", path, f"CORRUPT: {error}", problem=error, seconds=seconds)
    else:
        text = f"verified in {seconds:.1f} s" + (", no longer corrupt" if known.error else "")
        report.step("verified", path, text, seconds=seconds)
    size = work_folder.measure(control / "store")[0]
    return replace(known, time=time.time(), seconds=seconds, size=size, error=error)

"""Run of a backup: recovery points of all repositories, a restic backup, a check of the copies."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup import run_records, states
from hgfleet.backup.point import consistency
from hgfleet.core import files, identity
from hgfleet.core.errors import HgfleetError, HostError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hgfleet.backup.point.consistency import Copied
    from hgfleet.backup.restic.restic import Restic, Result
    from hgfleet.backup.restic.settings import Settings
    from hgfleet.backup.run_records import Data
    from hgfleet.core.report import Report

ROUNDS: Final = 5
"""How often a repository is read that is rewritten during the read. A push that moves data out of
an index does so once in the life of a file."""

ALL: Final = "all"
PART: Final = "part"
"""Tags of a backup of the whole host, and of repositories that had to be read again."""

PATHS: Final = "paths"
"""File in the folder of the recovery points: the identity of the repository at each path."""

EXCLUDES: Final = (
    ".hg/cache",
    ".hg/wcache",
    ".hg/store/lock",
    ".hg/wlock",
    ".hg/store/journal*",
    ".hg/store/undo*",
    ".hg/undo*",
    ".hg/storage-upgrade*",
    ".hg/store/.*~",
    ".sessions",
    ".restore",
    ".restore.*",
    ".restored.*",
)
"""Caches, locks, files of transactions, and copies that restores make: they do not belong to the
state of a repository."""


@dataclass(slots=True)
class Outcome:
    """Result of a run. `failed` has a reason for each repository or file without a backup."""

    snapshots: list[str] = field(default_factory=list)
    done: dict[str, Copied] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    added: int = 0


class Run:
    """A backup of this host."""

    def __init__(self, settings: Settings, restic: Restic, report: Report) -> None:
        self._settings = settings
        self._restic = restic
        self._report = report
        self._known: Data = run_records.load(settings.state, run_records.RUNS).get(
            "repositories", {}
        )
        self._identities: dict[str, str] = {}

    def run(self) -> Outcome:
        """Back up everything, and record the run. Raises HgfleetError of restic.

        A host has one run at a time, because a prune takes the locks of a run for left over once a
        later run has ended. Raises TemporaryError if another run is under way.
        """
        self._settings.points.mkdir(mode=0o750, parents=True, exist_ok=True)
        with files.open_folder(self._settings.state) as folder:
            if not files.try_lock(folder):
                raise TemporaryError("another backup of this host is under way; try again later")
            return self._run()

    def _run(self) -> Outcome:
        settings = self._settings
        started = time.time()
        declared = states.declared()
        controls = {}
        if states.has_repositories(declared, settings.parts):
            controls = dict(consistency.find(settings.repositories))
        self._identities = identities_of(controls)
        self._forget(controls)
        named = json.dumps(self._identities, sort_keys=True) + "\n"
        files.replace(settings.points / PATHS, named, mode=0o640, durable=False)
        others = [path for path in states.paths(declared, settings.parts) if Path(path).exists()]
        outcome = Outcome()
        wanted: Iterable[str] = controls
        for number in range(ROUNDS):
            copied = self._prepare({path: controls[path] for path in wanted}, outcome)
            paths = [str(settings.repositories), *others] if number == 0 else []
            if number:
                paths = [str(copy.control) for copy in copied]
            paths.append(str(settings.points))
            result = self._backup(paths, PART if number else ALL)
            wanted = self._check(copied, result, outcome, is_last=number == ROUNDS - 1)
            if not wanted:
                break
        self._keep(started, outcome)
        return outcome

    def _forget(self, paths: Iterable[str]) -> None:
        """Remove the points of repositories that are gone."""
        kept = {PATHS, *(self._file(path).name for path in paths)}
        for file in self._settings.points.iterdir():
            if file.name not in kept:
                file.unlink()

    def _file(self, path: str) -> Path:
        return self._settings.points / point_name(path, self._identities.get(path, ""))

    def _prepare(self, controls: dict[str, Path], outcome: Outcome) -> list[Copied]:
        copied = []
        for path, control in sorted(controls.items()):
            file = self._file(path)
            known = self._known.get(path, {}).get("signatures") if file.exists() else None
            try:
                copy = consistency.prepare(path, control, known)
            except HgfleetError as error:
                outcome.failed[path] = str(error)
                file.unlink(missing_ok=True)
                continue
            if copy.point is not None:
                files.replace(file, copy.point.text(), mode=0o640, durable=False)
            copied.append(copy)
        return copied

    def _backup(self, paths: Sequence[str], tag: str) -> Result:
        excludes = self._settings.state / "excludes"
        files.replace(excludes, "\n".join(EXCLUDES) + "\n", mode=0o640, durable=False)
        existing = [path for path in paths if Path(path).exists()]
        return self._restic.backup(existing, excludes, [tag])

    def _check(
        self, copied: Iterable[Copied], result: Result, outcome: Outcome, *, is_last: bool
    ) -> list[str]:
        """Return the repositories that have to be read again."""
        outcome.snapshots.append(result.snapshot)
        outcome.added += result.added
        unread = unread_files(result.errors)
        again = []
        for copy in copied:
            inside = f"{copy.control}/"
            reason = next((text for path, text in unread.items() if path.startswith(inside)), None)
            reason = copy.problem() or reason
            if reason is None:
                outcome.done[copy.path] = copy
                continue
            self._report.step("again", copy.path, reason, reason=reason)
            # An idle repository is captured in the next round.
            self._known.pop(copy.path, None)
            if is_last:
                outcome.failed[copy.path] = f"{reason}, {ROUNDS} times; the next run tries again"
            again.append(copy.path)
        root = f"{self._settings.repositories}/"
        outcome.failed |= {p: text for p, text in unread.items() if not p.startswith(root)}
        return again

    def _keep(self, started: float, outcome: Outcome) -> None:
        settings = self._settings
        kept: Data = {}
        for path, copy in outcome.done.items():
            before = self._known.get(path, {})
            point = copy.point
            kept[path] = {
                "identity": self._identities.get(path, ""),
                "signatures": copy.signatures,
                "changesets": point.changesets if point else before.get("changesets", 0),
                "push_id": point.push_id if point else before.get("push_id", 0),
                "time": started,
            }
        # A repository that could not be read now would be restored from its last backup.
        for path in outcome.failed.keys() & self._known.keys():
            known = self._known[path]
            if known.get("identity", "") in ("", self._identities.get(path, "")):
                kept[path] = known | {"signatures": None}
        run_records.save(
            settings.state,
            run_records.RUNS,
            {
                "started": started,
                "ended": time.time(),
                "snapshots": outcome.snapshots,
                "failed": outcome.failed,
                "repositories": kept,
            },
        )


def identities_of(controls: Mapping[str, Path]) -> dict[str, str]:
    """Return the identity of each repository, given its path and .hg; "" if it is taken.

    A copy that an operator made by hand has the same identity, so its point is under its path.
    """
    taken: set[str] = set()
    named = {}
    for path, control in sorted(controls.items()):
        own = identity.of(control.parent)
        named[path] = "" if own in taken else own
        taken.add(own)
    return named


def point_name(path: str, identity: str = "") -> str:
    """Return the name of the file with a repository's recovery point.

    An earlier release created repositories without an identity.
    """
    return f"{identity or files.file_name(path)}.json"


def unread_files(errors: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the files that restic could not read and that are still there.

    Temporary files come and go. `rewritten` notices a missing revlog file.
    """
    return {path: text for path, text in errors if path and Path(path).exists()}


def demand(outcome: Outcome) -> None:
    """Raise HostError if a repository or a file has no backup of this run."""
    if outcome.failed:
        named = "; ".join(f"{path}: {why}" for path, why in sorted(outcome.failed.items())[:5])
        raise HostError(f"{len(outcome.failed)} without a new backup: {named}")

"""Restore of a whole host that has lost its disk: files first, then every repository."""

from __future__ import annotations

import pwd
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup import point, restore, states
from hgfleet.core.errors import HgfleetError, HostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hgfleet.backup.point import Point
    from hgfleet.backup.restic import Restic, Snapshot
    from hgfleet.backup.settings import Settings
    from hgfleet.backup.states import State
    from hgfleet.core.report import Report

_INSTANT_SECONDS: Final = 0.001


def restore_host(
    settings: Settings, restic: Restic, report: Report, at: float | None = None
) -> list[str]:
    """Restore files and repositories to their places; return what could not be restored.

    A repository with changesets is left alone: this host has not lost it. Raises HgfleetError if
    there is no backup.
    """
    points = (
        (one, _points(settings, restic, one))
        for one in restore.candidates(restic.snapshots(), "", at)
    )
    chosen = choose(points, at)
    if chosen is None:
        raise HostError("no backup of this host up to that time; `hgfleet backup list` shows all")
    snapshot, repositories, at = chosen
    failed = _restore_files(settings, restic, report, snapshot, states.declared())
    for path in repositories:
        place = settings.repositories / path
        try:
            if has_changesets(place):
                report.step("kept", path, "has changesets, left as it is")
                continue
            shutil.rmtree(place, ignore_errors=True)
            found = restore.restore(settings, restic, restore.Wanted(path), place, at)
        except HgfleetError as error:
            report.step("failed", path, str(error), error=str(error))
            failed.append(path)
        else:
            report.step(
                "restored",
                path,
                f"{found.point.changesets} changesets up to push {found.point.push_id}, verified",
                changesets=found.point.changesets,
                push=found.point.push_id,
            )
    return failed


def choose(
    backups: Iterable[tuple[Snapshot, Sequence[Point]]], at: float | None
) -> tuple[Snapshot, list[str], float | None] | None:
    """Choose the newest backup of a host, given all with their points from the newest on.

    A host that was deployed blank backs its empty repositories up before it is restored. Such
    backups are passed over, for repositories too: the last value is the time that they begin
    after. A host that never had a changeset is restored from its newest backup.
    """
    newest = None
    limit = at
    for snapshot, points in backups:
        found = snapshot, sorted(one.path for one in points), limit
        if any(one.changesets for one in points):
            return found
        newest = newest or found
        limit = snapshot.seconds - _INSTANT_SECONDS
    return newest


def has_changesets(repository: Path) -> bool:
    """Whether a repository is there and has any changeset."""
    try:
        return (repository / ".hg/store/00changelog.i").stat().st_size > 0
    except FileNotFoundError:
        return False


def _points(settings: Settings, restic: Restic, snapshot: Snapshot) -> list[Point]:
    """Return the recovery points of a backup."""
    with tempfile.TemporaryDirectory(prefix="hgfleet-restore.") as name:
        restic.restore(snapshot.id, str(settings.points), Path(name))
        folder = Path(name + str(settings.points))
        return [point.parse(file.read_bytes()) for file in folder.glob("*.json")]


def _restore_files(
    settings: Settings,
    restic: Restic,
    report: Report,
    snapshot: Snapshot,
    declared: Iterable[State],
) -> list[str]:
    """Restore the files of the host's states in their places; return those that failed."""
    failed = []
    for state in declared:
        for path in states.paths([state], settings.parts):
            if path not in snapshot.paths:
                continue
            try:
                restic.restore(snapshot.id, path, Path("/"))
                restore.give(Path(path), *receiver(state, settings.owner))
            except HgfleetError as error:
                report.step("failed", path, str(error), error=str(error))
                failed.append(path)
            else:
                report.step("restored", path, f"{state.name}, of {snapshot.time[:19]}")
    return failed


def receiver(state: State, first: str) -> tuple[str, str]:
    """Return the user and the group of the restored files of a state.

    The user `first`, who owns the repositories, is there before a restore; the role that creates
    another one may come after it. The files are root's until then: systemd gives a
    `StateDirectory=` to the user of its unit when the unit starts.
    """
    try:
        pwd.getpwnam(state.owner)
    except KeyError:
        if state.owner != first:
            return "root", "-"
    return state.owner, state.group

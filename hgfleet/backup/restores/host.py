"""Restore of a whole host that has lost its disk: files first, then every repository.

Each file and repository is restored next to its place, and moved there when it is complete: a
restore that fails leaves the former files.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup import states
from hgfleet.backup.point import consistency, point
from hgfleet.backup.restores import restore
from hgfleet.core import identity
from hgfleet.core.errors import HgfleetError, HostError
from hgfleet.core.swap import rename_exchange
from hgfleet.pushlog import log_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hgfleet.backup.point.point import Point
    from hgfleet.backup.restic.restic import Restic, Snapshot
    from hgfleet.backup.restic.settings import Settings
    from hgfleet.backup.restores.restore import Restored
    from hgfleet.backup.states import State
    from hgfleet.core.report import Report

_INSTANT_SECONDS: Final = 0.001


def restore_host(
    settings: Settings, restic: Restic, report: Report, at: float | None = None
) -> list[str]:
    """Restore files and repositories to their places; return the names that could not be restored.

    A repository with changesets stays as it is: this host has not lost it. So does a repository
    that cannot be restored. Raises HgfleetError if there is no backup.
    """
    snapshot, repositories, at = _chosen(settings, restic, at)
    failed = _restore_files(settings, restic, report, snapshot, states.declared())
    for path in repositories:
        place = settings.repositories / path
        try:
            if has_changesets(place):
                report.step("kept", path, "has changesets, stays as it is")
                continue
            restored = restore_repository(settings, restic, path, at)
        except (HgfleetError, OSError) as error:
            report.step("failed", path, str(error), error=str(error))
            failed.append(path)
        else:
            report.step(
                "restored",
                path,
                f"{restored.point.changesets} changesets up to push {restored.point.push_id}, "
                "verified"
                + "".join(f"; passed over: the backup of {why}" for why in restored.passed_over),
                changesets=restored.point.changesets,
                push=restored.point.push_id,
                passed_over=len(restored.passed_over),
            )
    return failed


def restore_repository(
    settings: Settings, restic: Restic, path: str, at: float | None = None
) -> Restored:
    """Restore a repository next to its place, and exchange it with the empty repository there.

    Raises HgfleetError or OSError, and then leaves the place as it was.
    """
    place = settings.repositories / path
    # Neither a run of the backup nor the service takes a hidden folder for a repository.
    beside = place.with_name(f".restored.{place.name}")
    # A killed run may have left it.
    shutil.rmtree(beside, ignore_errors=True)
    restored = restore.restore(settings, restic, restore.Wanted(path), beside, at)
    try:
        if not os.path.lexists(place):
            beside.rename(place)
        elif has_changesets(place):
            raise HostError(f"{place} got changesets while it was restored; it stays as it is")
        else:
            rename_exchange(beside, place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return replace(restored, folder=place)


def positions(
    settings: Settings, restic: Restic, at: float | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the ends of the push logs that this host has after a restore.

    These are the push logs of the backup, and of repositories that stay as they are. The form is
    that of `hgfleet replication positions`, with which mirrors compare. Raises HgfleetError if
    there is no backup.
    """
    snapshot, paths, _ = _chosen(settings, restic, at)
    kept = set()
    for path, control in consistency.find(settings.repositories):
        if has_changesets(control.parent):
            tip = log_file.tip(control / "store" / log_file.NAME)
            named = identity.of(control.parent) or tip.repository
            kept.add(path)
            yield _position("this host", path, named, tip.id, tip.hash)
    where = f"the backup of {snapshot.time[:19]}"
    for saved in _points(settings, restic, snapshot):
        if saved.path in paths and saved.path not in kept:
            yield _position(where, saved.path, saved.identity, saved.push_id, saved.push_hash)


def _position(where: str, path: str, named: str, number: int, hashed: str) -> dict[str, Any]:
    return {"where": where, "path": path, "repository": named, "id": number, "hash": hashed}


def _chosen(
    settings: Settings, restic: Restic, at: float | None
) -> tuple[Snapshot, list[str], float | None]:
    points = (
        (snapshot, _points(settings, restic, snapshot))
        for snapshot in restore.candidates(restic.snapshots(), "", at)
    )
    chosen = choose(points, at)
    if chosen is None:
        raise HostError("no backup of this host up to that time; `hgfleet backup list` shows all")
    return chosen


def choose(
    backups: Iterable[tuple[Snapshot, Sequence[Point]]], at: float | None
) -> tuple[Snapshot, list[str], float | None] | None:
    """Choose the newest backup of a host, given all backups with their points, newest first.

    A host that was deployed blank backs its empty repositories up before it is restored. Such
    backups are passed over, for repositories too: they are all later than the time that is
    returned last. A host that never had a changeset is restored from its newest backup.
    """
    newest = None
    limit = at
    for snapshot, points in backups:
        choice = snapshot, sorted(saved.path for saved in points), limit
        if any(saved.changesets for saved in points):
            return choice
        newest = newest or choice
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
    """Restore the files of the host's states to their places; return the paths that failed."""
    failed = []
    for state in declared:
        for path in states.paths([state], settings.parts):
            if path not in snapshot.paths:
                continue
            try:
                restore_files(restic, snapshot, Path(path), *receiver(state, settings.owner))
            except (HgfleetError, OSError) as error:
                report.step("failed", path, str(error), error=str(error))
                failed.append(path)
            else:
                report.step("restored", path, f"{state.name}, of {snapshot.time[:19]}")
    return failed


def restore_files(
    restic: Restic, snapshot: Snapshot, place: Path, owner: str, group: str = "-"
) -> None:
    """Restore a file or folder to its place, each file by a rename once all are restored.

    Files that are not in the backup stay. Raises HgfleetError or OSError.
    """
    # In the file system of the place, so that a rename moves each file there.
    folder = place if place.is_mount() else place.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore.", dir=folder) as name:
        restic.restore(snapshot.id, str(place), Path(name))
        restored = Path(f"{name}{place}")
        if not os.path.lexists(restored):
            raise HostError(f"{place}: the backup of {snapshot.time[:19]} does not have it")
        restore.give(restored, owner, group)
        if problem := obstacle(restored, place):
            raise HostError(problem)
        move(restored, place)


def obstacle(restored: Path, place: Path) -> str | None:
    """Return why restored files cannot take their places; None if they can."""
    is_folder = restored.is_dir() and not restored.is_symlink()
    if not os.path.lexists(place) or (not is_folder and not place.is_dir()):
        return None
    if not is_folder or not place.is_dir():
        kind, other = ("a folder", "a file") if is_folder else ("a file", "a folder")
        return f"{place}: got {other}, expected {kind}, as in the backup; move it away"
    problems = (obstacle(entry, place / entry.name) for entry in sorted(restored.iterdir()))
    return next(filter(None, problems), None)


def move(restored: Path, place: Path) -> None:
    """Move a restored file or folder to its place; a folder there gets its missing entries."""
    if not place.is_dir() or not restored.is_dir() or restored.is_symlink():
        restored.replace(place)
        return
    for entry in sorted(restored.iterdir()):
        move(entry, place / entry.name)
    status = restored.stat()
    os.chown(place, status.st_uid, status.st_gid)
    shutil.copystat(restored, place)


def receiver(state: State, first: str) -> tuple[str, str]:
    """Return the user and the group of the restored files of a state.

    The user `first`, who owns the repositories, exists before a restore; a role may create other
    users only after it. Until then their files belong to root: systemd gives a `StateDirectory=` to
    the user of its unit when the unit starts.
    """
    try:
        pwd.getpwnam(state.owner)
    except KeyError:
        if state.owner != first:
            return "root", "-"
    return state.owner, state.group

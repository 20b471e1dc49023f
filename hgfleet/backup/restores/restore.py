"""Restore of a repository, as of a backup or of a time, verified before it is in its place."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from hgfleet.backup.point import point as points
from hgfleet.backup.point import recovered, rewind
from hgfleet.backup.run import ALL, PATHS, point_name
from hgfleet.core import files, identity
from hgfleet.core.errors import HgfleetError, HostError, UnavailableError, UsageError
from hgfleet.hg import unconfigured
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import Heads
from hgfleet.registry.provision.provisioning import DIRECTORY_MODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hgfleet.backup.point.point import Point
    from hgfleet.backup.restic.restic import Restic, Snapshot
    from hgfleet.backup.restic.settings import Settings

_OUTPUT: Final = 2000


class Wanted(NamedTuple):
    """The repository that is restored: its path, and its identity.

    Without an identity it is the repository that had the path in the newest backup.
    """

    path: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """A repository that was restored and verified. `heads` are nodes.

    `passed_over` has the reason for each backup that was tried before.
    """

    folder: Path
    point: Point
    snapshot: Snapshot
    heads: tuple[str, ...]
    passed_over: tuple[str, ...] = ()


def moment(text: str) -> float:
    """Return the time of `--at`, seconds since 1970. Raises UsageError."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise UsageError(
            f"--at: got {text!r}, expected a time such as 2026-11-24T14:30 (of this host's zone) "
            "or 2026-11-24T14:30+00:00"
        ) from error


def candidates(
    snapshots: Sequence[Snapshot], control: str, upto: float | None = None
) -> Iterator[Snapshot]:
    """Yield the backups up to a time that may have a repository, given its .hg, newest first."""
    for snapshot in snapshots:
        if upto is not None and snapshot.seconds > upto:
            continue
        if ALL in snapshot.tags or control in snapshot.paths:
            yield snapshot


def restore(
    settings: Settings, restic: Restic, wanted: Wanted, target: Path, upto: float | None = None
) -> Restored:
    """Restore the newest backup up to a time into a folder that does not exist yet.

    If a backup does not verify, the backup before it is tried. Raises HgfleetError.
    """
    attempts = Attempts(settings, restic, wanted, target)
    snapshots = restic.snapshots()
    earlier = [snapshot for snapshot in snapshots if upto is None or snapshot.seconds <= upto]
    return attempts.first(attempts.points(earlier)) or attempts.end()


def restore_at(
    settings: Settings, restic: Restic, wanted: Wanted, target: Path, at: float
) -> Restored:
    """Restore the state after the last push up to a time; otherwise like `restore`.

    A backup after that time has all pushes up to it. If no such backup leads back to the time, the
    newest backup up to the time is restored.
    """
    attempts = Attempts(settings, restic, wanted, target)
    snapshots = restic.snapshots()
    attempts.choose(snapshots)
    later = [snapshot for snapshot in reversed(snapshots) if snapshot.seconds > at]
    earlier = [snapshot for snapshot in snapshots if snapshot.seconds <= at]
    return (
        attempts.first(surest(attempts.points(later), at), at)
        or attempts.first(attempts.points(earlier))
        or attempts.end()
    )


def surest(later: Iterable[tuple[Snapshot, Point]], at: float) -> Iterator[tuple[Snapshot, Point]]:
    """Order the backups after a time, which come oldest first, by how sure they are. Pure.

    The oldest backup may have begun before that time, and then misses the pushes in between. The
    next backup began after it.
    """
    begun_before = []
    for number, (snapshot, point) in enumerate(later):
        if number == 0 and point.time < at:
            begun_before.append((snapshot, point))
        else:
            yield snapshot, point
    yield from begun_before


class Attempts:
    """Attempts to restore a repository; `reasons` has the failure of each backup that was tried.

    A backup that cannot be read counts as a failure as long as the store answers. If the store does
    not answer, UnavailableError is raised.
    """

    def __init__(self, settings: Settings, restic: Restic, wanted: Wanted, target: Path) -> None:
        if target.exists():
            raise UsageError(f"{target} exists; name a folder that does not")
        self._settings, self._restic = settings, restic
        self._path, self._identity = wanted
        self._target = target
        self.reasons: list[str] = []

    def choose(self, snapshots: Iterable[Snapshot]) -> None:
        """If no identity is wanted, choose the repository that had the path last."""
        for snapshot in snapshots:
            if self._identity:
                return
            try:
                text = self._restic.dump(snapshot.id, str(self._settings.points / PATHS))
            except UnavailableError as error:
                self._demand_answer(error)
                continue
            self._identity = identity_at(self._path, text or "")

    def points(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, Point]]:
        """Yield the backups that have the repository, each with its recovery point, one by one."""
        for snapshot in snapshots:
            try:
                self.choose([snapshot])
                text = self._text(snapshot, self._identity) if self._identity else None
                text = text or self._text(snapshot, "")
                if text is None:
                    continue
                point = points.parse(text)
            except UnavailableError as error:
                self._pass_over(snapshot, error)
                continue
            except HostError as error:
                self.reasons.append(f"{snapshot.time}: {error}")
                continue
            control = str(self._settings.repositories / point.path / ".hg")
            if problem := another(point.identity, self._identity):
                self.reasons.append(f"{snapshot.time}: {problem}")
            elif ALL in snapshot.tags or control in snapshot.paths:
                yield snapshot, point

    def _pass_over(self, snapshot: Snapshot, error: UnavailableError) -> None:
        """Record that a backup cannot be read; raise UnavailableError if the store is away."""
        self._demand_answer(error)
        self.reasons.append(f"{snapshot.time}: {error}")

    def _demand_answer(self, error: UnavailableError) -> None:
        if not self._restic.exists():
            raise error

    def _text(self, snapshot: Snapshot, identity: str) -> str | None:
        file = self._settings.points / point_name(self._path, identity)
        return self._restic.dump(snapshot.id, str(file))

    def first(
        self, chosen: Iterable[tuple[Snapshot, Point]], at: float | None = None
    ) -> Restored | None:
        """Restore the first backup that works, and take it back to the time if it is given."""
        for snapshot, point in chosen:
            try:
                # An earlier release named no identity: the push log says which repository it is.
                wanted = replace(point, identity=point.identity or self._identity)
                restored = _restore(
                    self._settings, self._restic, snapshot, wanted, self._target, at
                )
            except UnavailableError as error:
                self._pass_over(snapshot, error)
            except rewind.UnreachableError as error:
                # The logs of all later backups are the same up to there.
                self.reasons.append(f"{snapshot.time}: {error}")
                return None
            except (HgfleetError, OSError) as error:
                self.reasons.append(f"{snapshot.time}: {error}")
            else:
                return replace(restored, passed_over=tuple(self.reasons))
        return None

    def end(self) -> NoReturn:
        """Raise HostError with the reason for each backup."""
        if self.reasons:
            raise HostError(f"{self._path}: no backup can be restored: {'; '.join(self.reasons)}")
        raise HostError(
            f"{self._path}: no backup has it, or no backup up to the given time; `hgfleet backup "
            "list` shows the backups, and `hgfleet backup status` the repositories"
        )


def _restore(
    settings: Settings,
    restic: Restic,
    snapshot: Snapshot,
    point: Point,
    target: Path,
    at: float | None,
) -> Restored:
    control = settings.repositories / point.path / ".hg"
    make_folders(target.parent, settings.owner)
    # In the same folder, so that the last step is a rename.
    with tempfile.TemporaryDirectory(prefix=".restore.", dir=target.parent) as name:
        restic.restore(snapshot.id, str(control), Path(name))
        copied = Path(name + str(control)).parent
        recovered.rebuild(copied / ".hg", point)
        _identify(copied, point)
        if at is not None:
            point = rewind.rewind(copied / ".hg", point, at)
        verify(settings, copied)
        heads = heads_of(settings, copied)
        digest = Heads.digest_of(heads)
        if point.push_id and digest != point.heads:
            raise HostError(
                f"{point.path}: the heads have the digest {digest[:12]}, expected "
                f"{point.heads[:12]}, the digest of push {point.push_id}"
            )
        if os.geteuid() == 0:
            give(copied, settings.owner)
        copied.rename(target)
    return Restored(target, point, snapshot, heads)


def _identify(folder: Path, point: Point) -> None:
    """Check that a restored repository has the identity of the point, and write its file.

    Raises HostError.
    """
    expected, named = point.identity, identity.of(folder)
    actual = named or log_file.tip(folder / ".hg/store" / log_file.NAME).repository
    if problem := another(actual, expected):
        raise HostError(problem)
    if expected and not actual and point.changesets:
        raise HostError(
            f"it does not say whether it is repository {expected}; `hgfleet backup "
            f"restore-files /srv/hg/repos/{point.path} --to FOLDER` restores its files"
        )
    if expected and not named:
        files.replace(folder / identity.FILE, identity.text(expected), mode=0o640)


def target_problem(target: Path | None, place: Path, root: Path) -> str | None:
    """Return why a repository cannot be restored to a folder, given its place. Pure.

    A copy has the identity of its repository, which no other repository in service may have.
    """
    if target is None or target == place or not target.is_relative_to(root):
        return None
    return (
        f"--to: got {target}, expected {place} or a folder outside of {root}: a second repository "
        "would have the identity of the first; for a copy, create a repository and push to it from "
        "the restored one"
    )


def identity_at(path: str, text: str) -> str:
    """Return the identity of the repository at a path in a backup; "" if it has none. Pure."""
    try:
        named = json.loads(text)[path]
    except (ValueError, KeyError, TypeError):
        return ""
    return named if identity.is_identity(named) else ""


def another(found: str, wanted: str) -> str | None:
    """Return why a backup has another repository; None if it may have the wanted one. Pure."""
    if not found or not wanted or found == wanted:
        return None
    return (
        f"it has repository {found}, which had this path before, expected {wanted}; "
        f"`hgfleet backup restore PATH --identity {found}` restores a copy of the former"
    )


def hg(settings: Settings, folder: Path, *arguments: str) -> str:
    """Run hg without the configuration of the service; raises HostError with its output."""
    done = subprocess.run(
        [settings.hg, "-R", folder, *arguments],
        env=unconfigured.environment(),
        cwd="/",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())[-_OUTPUT:]
        raise HostError(f"hg {arguments[0]} ended with {done.returncode}: {said}")
    return done.stdout


def verify(settings: Settings, folder: Path) -> None:
    """Verify a repository with `hg verify`. Raises HostError."""
    hg(settings, folder, "verify", "--quiet")


def heads_of(settings: Settings, folder: Path) -> tuple[str, ...]:
    """Return the heads of a repository, hidden heads included."""
    out = hg(settings, folder, "log", "--hidden", "-r", "heads(all())", "-T", "{node}\n")
    return tuple(sorted(out.split()))


def make_folders(folder: Path, owner: str) -> None:
    """Make a folder and its parents; root gives new folders to the owner of the repositories.

    People create other repositories in these folders.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing if os.geteuid() == 0 else ():
        give(path, owner, whole=False)
        path.chmod(DIRECTORY_MODE)


def give(folder: Path, owner: str, group: str = "-", *, whole: bool = True) -> None:
    """Give a file, or a folder with all in it, to a user and a group ("-": the user's own group).

    restic restores the numbers of users and groups, which differ by host. Raises HostError.
    """
    try:
        user = pwd.getpwnam(owner)
        number = grp.getgrnam(group).gr_gid if group != "-" else user.pw_gid
    except KeyError as error:
        wanted = f"user {owner}" + (f", or no group {group}" if group != "-" else "")
        raise HostError(f"no {wanted}; the role `mercurial` creates them") from error
    os.chown(folder, user.pw_uid, number, follow_symlinks=False)
    for above, folders, names in os.walk(folder) if whole else ():
        for name in (*folders, *names):
            os.chown(Path(above, name), user.pw_uid, number, follow_symlinks=False)

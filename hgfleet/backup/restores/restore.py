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

    Without an identity it is the one that had the path in the newest backup.
    """

    path: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """A repository that was restored and verified. `heads` are nodes.

    `passed_over` has the reason of each backup that was tried before.
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
    for one in snapshots:
        if upto is not None and one.seconds > upto:
            continue
        if ALL in one.tags or control in one.paths:
            yield one


def restore(
    settings: Settings, restic: Restic, wanted: Wanted, target: Path, upto: float | None = None
) -> Restored:
    """Restore the newest backup up to a time into a folder that does not exist yet.

    A backup that does not verify is passed over for the one before. Raises HgfleetError.
    """
    attempts = Attempts(settings, restic, wanted, target)
    found = [one for one in restic.snapshots() if upto is None or one.seconds <= upto]
    return attempts.first(attempts.points(found)) or attempts.end()


def restore_at(
    settings: Settings, restic: Restic, wanted: Wanted, target: Path, at: float
) -> Restored:
    """Restore the state after the last push up to a time; otherwise like `restore`.

    A backup after that time has the pushes up to it. Where none leads back to it, the newest backup
    up to it is restored.
    """
    attempts = Attempts(settings, restic, wanted, target)
    found = restic.snapshots()
    attempts.choose(found)
    later = [one for one in reversed(found) if one.seconds > at]
    return (
        attempts.first(surest(attempts.points(later), at), at)
        or attempts.first(attempts.points(one for one in found if one.seconds <= at))
        or attempts.end()
    )


def surest(later: Iterable[tuple[Snapshot, Point]], at: float) -> Iterator[tuple[Snapshot, Point]]:
    """Order the backups after a time, given the oldest first. Pure.

    The first of them may have been begun before that time, and then misses pushes that came in
    between. The next one was begun after it.
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

    A backup that cannot be read is such a failure as long as the store answers; UnavailableError is
    raised where it does not.
    """

    def __init__(self, settings: Settings, restic: Restic, wanted: Wanted, target: Path) -> None:
        if target.exists():
            raise UsageError(f"{target} exists; name a folder that does not")
        self._settings, self._restic = settings, restic
        self._path, self._identity = wanted
        self._target = target
        self.reasons: list[str] = []

    def choose(self, snapshots: Iterable[Snapshot]) -> None:
        """Take, where no identity is wanted, the repository that had the path last."""
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
        """Yield the backups that have the repository, with its recovery point, read when due."""
        for snapshot in snapshots:
            try:
                self.choose([snapshot])
                text = self._text(snapshot, self._identity) if self._identity else None
                text = text or self._text(snapshot, "")
                if text is None:
                    continue
                found = points.parse(text)
            except UnavailableError as error:
                self._pass_over(snapshot, error)
                continue
            except HostError as error:
                self.reasons.append(f"{snapshot.time}: {error}")
                continue
            control = str(self._settings.repositories / found.path / ".hg")
            if problem := another(found.identity, self._identity):
                self.reasons.append(f"{snapshot.time}: {problem}")
            elif ALL in snapshot.tags or control in snapshot.paths:
                yield snapshot, found

    def _pass_over(self, snapshot: Snapshot, error: UnavailableError) -> None:
        """Note that a backup cannot be read; raises UnavailableError if the store is away."""
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
        """Restore the first backup that can be, taken back to a time if one is given."""
        for snapshot, point in chosen:
            try:
                # Of a release before: its push log says which repository it is.
                wanted = replace(point, identity=point.identity or self._identity)
                found = _restore(self._settings, self._restic, snapshot, wanted, self._target, at)
            except UnavailableError as error:
                self._pass_over(snapshot, error)
            except rewind.UnreachableError as error:
                # The logs of all later backups are the same up to there.
                self.reasons.append(f"{snapshot.time}: {error}")
                return None
            except (HgfleetError, OSError) as error:
                self.reasons.append(f"{snapshot.time}: {error}")
            else:
                return replace(found, passed_over=tuple(self.reasons))
        return None

    def end(self) -> NoReturn:
        """Raise HostError with the reason of each backup."""
        if self.reasons:
            raise HostError(f"{self._path}: no backup can be restored: {'; '.join(self.reasons)}")
        raise HostError(
            f"{self._path}: no backup has it, or none up to the time if one was given; `hgfleet "
            "backup list` shows the backups, and `hgfleet backup status` the repositories"
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
    # In the same folder, so that the end is a rename.
    with tempfile.TemporaryDirectory(prefix=".restore.", dir=target.parent) as name:
        restic.restore(snapshot.id, str(control), Path(name))
        found = Path(name + str(control)).parent
        recovered.rebuild(found / ".hg", point)
        _identify(found, point)
        if at is not None:
            point = rewind.rewind(found / ".hg", point, at)
        verify(settings, found)
        heads = heads_of(settings, found)
        digest = Heads.digest_of(heads)
        if point.push_id and digest != point.heads:
            raise HostError(
                f"{point.path}: the heads have the digest {digest[:12]}, expected that of push "
                f"{point.push_id}, {point.heads[:12]}"
            )
        if os.geteuid() == 0:
            give(found, settings.owner)
        found.rename(target)
    return Restored(target, point, snapshot, heads)


def _identify(folder: Path, point: Point) -> None:
    """Check that a restored repository is the one of the point, and give it its file.

    Raises HostError.
    """
    expected, named = point.identity, identity.of(folder)
    found = named or log_file.tip(folder / ".hg/store" / log_file.NAME).repository
    if problem := another(found, expected):
        raise HostError(problem)
    if expected and not found and point.changesets:
        raise HostError(
            f"it does not say whether it is of repository {expected}; `hgfleet backup "
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
    """Return the identity of the repository that a backup has at a path; "" without one. Pure."""
    try:
        found = json.loads(text)[path]
    except (ValueError, KeyError, TypeError):
        return ""
    return found if identity.is_identity(found) else ""


def another(found: str, wanted: str) -> str | None:
    """Return why a backup is that of another repository; None if it may be the one. Pure."""
    if not found or not wanted or found == wanted:
        return None
    return (
        f"it has repository {found}, which had this path before, and {wanted} is wanted; "
        f"`hgfleet backup restore PATH --identity {found}` restores it beside"
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
    """Have hg verify a repository. Raises HostError."""
    hg(settings, folder, "verify", "--quiet")


def heads_of(settings: Settings, folder: Path) -> tuple[str, ...]:
    """Return the heads of a repository, those of hidden changesets included."""
    out = hg(settings, folder, "log", "--hidden", "-r", "heads(all())", "-T", "{node}\n")
    return tuple(sorted(out.split()))


def make_folders(folder: Path, owner: str) -> None:
    """Make a folder and those above it; root gives new ones to the owner of the repositories.

    People create repositories beside the restored ones.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing if os.geteuid() == 0 else ():
        give(one, owner, whole=False)
        one.chmod(DIRECTORY_MODE)


def give(folder: Path, owner: str, group: str = "-", *, whole: bool = True) -> None:
    """Give a file, or a folder with all in it, to a user and a group, "-" for the user's own.

    Numbers of users and groups differ by host, and restic restores the numbers. Raises HostError.
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

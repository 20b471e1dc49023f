"""Restore of a repository from the newest backup up to a time, verified before it is in place."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup import point as points
from hgfleet.backup import rebuild
from hgfleet.backup.run import ALL, point_file
from hgfleet.core.errors import HgfleetError, HostError, UnavailableError, UsageError
from hgfleet.hg import unconfigured
from hgfleet.pushlog.record import Heads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hgfleet.backup.point import Point
    from hgfleet.backup.restic import Restic, Snapshot
    from hgfleet.backup.settings import Settings

_OUTPUT: Final = 2000


@dataclass(frozen=True, slots=True)
class Restored:
    """A repository that was restored and verified. `heads` are nodes."""

    folder: Path
    point: Point
    snapshot: Snapshot
    heads: tuple[str, ...]


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
    snapshots: Sequence[Snapshot], control: str, at: float | None = None
) -> Iterator[Snapshot]:
    """Yield the backups that may have a repository, given its .hg, the newest first."""
    for one in snapshots:
        if at is not None and datetime.fromisoformat(one.time).timestamp() > at:
            continue
        if ALL in one.tags or control in one.paths:
            yield one


def restore(
    settings: Settings, restic: Restic, path: str, target: Path, at: float | None = None
) -> Restored:
    """Restore a repository into a folder that does not exist yet. Raises HgfleetError.

    A backup that does not verify is passed over for the one before; the error names each.
    """
    if target.exists():
        raise UsageError(f"{target} exists; name a folder that does not")
    control = settings.repositories / path / ".hg"
    reasons = []
    for snapshot in candidates(restic.snapshots(), str(control), at):
        text = restic.dump(snapshot.id, str(point_file(settings, path)))
        if text is None:
            continue
        try:
            return _restore(settings, restic, snapshot, points.parse(text), target)
        except UnavailableError:
            raise
        except (HgfleetError, OSError) as error:
            reasons.append(f"{snapshot.time}: {error}")
    if reasons:
        raise HostError(f"{path}: no backup can be restored: {'; '.join(reasons)}")
    raise HostError(
        f"{path}: no backup has it{' up to that time' if at else ''}; `hgfleet backup list` shows "
        "the backups, and `hgfleet backup status` the repositories"
    )


def _restore(
    settings: Settings, restic: Restic, snapshot: Snapshot, point: Point, target: Path
) -> Restored:
    control = settings.repositories / point.path / ".hg"
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the end is a rename.
    with tempfile.TemporaryDirectory(prefix=".restore.", dir=target.parent) as name:
        restic.restore(snapshot.id, str(control), Path(name))
        found = Path(name + str(control)).parent
        rebuild.rebuild(found / ".hg", point)
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


def give(folder: Path, owner: str, *, whole: bool = True) -> None:
    """Give a file, or a folder with all in it, to its owner: numbers of users differ by host."""
    try:
        user = pwd.getpwnam(owner)
    except KeyError as error:
        raise HostError(f"no user {owner}; the role `mercurial` creates it") from error
    os.chown(folder, user.pw_uid, user.pw_gid, follow_symlinks=False)
    for above, folders, names in os.walk(folder) if whole else ():
        for name in (*folders, *names):
            os.chown(Path(above, name), user.pw_uid, user.pw_gid, follow_symlinks=False)

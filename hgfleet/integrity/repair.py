"""Repair of a corrupt repository: it is rebuilt next to its place, verified, and exchanged.

On a mirror, the copy comes from the primary. Elsewhere the newest backup that verifies is restored,
and the pushes after it come from the corrupt repository itself: bit rot in old data leaves new data
readable. Every revision is compared with its hash on the way, and the result with the last record
of the push log, so nothing corrupt gets into the copy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from hgfleet.backup.point.capture import REPLACED
from hgfleet.backup.restores import in_place, repo_restore, restore
from hgfleet.core import durable, files, identity
from hgfleet.core.errors import HostError, PushlogError, TemporaryError, UnavailableError
from hgfleet.hg import unconfigured
from hgfleet.integrity.check import check
from hgfleet.pushlog import index, index_step, log_file
from hgfleet.pushlog.record import hash_of, parse
from hgfleet.registry import owned_files
from hgfleet.replication.protocol.settings import Role
from hgfleet.storage import replacing, work_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hgfleet.backup.restic.settings import Settings as Backup
    from hgfleet.replication.protocol.settings import Settings as Replication

ROUNDS: Final = 5
"""How often pushes may interrupt the last step."""

STATE: Final = (*REPLACED, "store/obsstore")
"""Small files that are copied as they are, with the log."""


def repair(path: str, replication: Replication | None, backup: Backup | None) -> str:
    """Replace a repository by a good copy; return where the copy is from. Raises HgfleetError."""
    if replication is not None and replication.role is Role.MIRROR:
        return _from_primary(path, replication)
    if backup is not None:
        return _from_backup(path, backup)
    raise UnavailableError(
        f"{path}: this host is no mirror and has no backups (/etc/hgfleet/backup.toml), so nothing "
        "here has a good copy; push a clone of it into a new repository"
    )


def _from_primary(path: str, settings: Replication) -> str:
    from hgfleet.replication.mirror.resync import resync
    from hgfleet.replication.repositories.registry_paths import identity_at
    from hgfleet.replication.source.client import SourceClient

    source = SourceClient(settings)
    # Only root can read the key.
    source.read_certificates()
    owned_files.become(settings.repositories.owner())
    resync(settings, source, identity_at(settings, path))
    return f"from the primary, {settings.primary}"


def _from_backup(path: str, settings: Backup) -> str:
    copy = repo_restore.beside(settings, path)
    wanted = restore.Wanted(path, identity.of(settings.repositories / path))
    # Before the first write: else another process may hear of the loss of these writes.
    with durable.Disk(settings.repositories) as disk:
        return _restored(path, settings, wanted, copy, disk)


def _restored(
    path: str, settings: Backup, wanted: restore.Wanted, copy: Path, disk: durable.Disk
) -> str:
    from hgfleet.backup.restic.restic import Restic

    restored = restore.restore(settings, Restic(settings), wanted, copy)
    owned_files.become(settings.owner)
    running = settings.repositories / path
    for _ in range(ROUNDS):
        log = _log(running)
        pushes = complete(copy, running, log)
        _demand(copy)
        work_folder.sync(disk)
        if not replacing.replace(running, copy, path, partial(_has_log, running, log)):
            # A push came in the meantime.
            continue
        kept = copy.with_name(f"{copy.name}.corrupt")
        copy.rename(kept)
        return (
            f"from the backup of {restored.snapshot.time[:19]} and {pushes} later pushes of the "
            f"corrupt repository, which is kept as {kept}"
        )
    raise TemporaryError(f"{path}: pushes come faster than it can be rebuilt; try again")


def complete(copy: Path, running: Path, there: Sequence[bytes]) -> int:
    """Give a restored copy the pushes that came after its backup; return how many.

    `there` is the log of the corrupt repository. Raises HostError and PushlogError if that
    repository cannot give the pushes.
    """
    here = _log(copy)
    lines = continued(here, there)
    shutil.copyfile(running / ".hg/hgrc", copy / ".hg/hgrc")
    if len(lines) == len(here):
        return 0
    # Without hooks and extensions of the service, because these pushes were accepted before.
    os.environ.update(unconfigured.VARIABLES)
    from mercurial import ui as ui_module

    in_place.bring(ui_module.ui(), copy, running, keep=False)
    for name in STATE:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(running / ".hg" / name, copy / ".hg" / name)
    log = copy / ".hg/store" / log_file.NAME
    files.replace(log, b"".join(line + b"\n" for line in lines), mode=0o640)
    index.refresh(str(log), str(copy / ".hg/cache" / index_step.NAME))
    return len(lines) - len(here)


def continued(here: Sequence[bytes], there: Sequence[bytes]) -> list[bytes]:
    """Return the log of a backup with the later records of a log that may be corrupt. Pure.

    Raises PushlogError if a later record is missing or was changed.
    """
    # The log of the backup is good. The log of the corrupt repository continues it from the line
    # after the last line of the backup. If bit rot changed that very line, its number is used to
    # find it. Each later record must then follow the record before it, by number and by hash.
    last = parse(here[-1]) if here else None
    number, end = (last.id, hash_of(here[-1])) if last else (0, "")
    # Damage before the last record of the backup may have changed the number of lines.
    start = there.index(here[-1]) + 1 if here and here[-1] in there else number
    lines = list(here)
    for line in there[start:]:
        try:
            record = parse(line)
        except PushlogError as error:
            raise _broken(number) from error
        if record.id != number + 1 or (end and record.previous != end):
            raise _broken(number)
        number, end = record.id, hash_of(line)
        lines.append(line)
    return lines


def _broken(number: int) -> PushlogError:
    return PushlogError(
        f"the push log is corrupt after record {number}, where the newest backup ends; where a "
        "mirror is good, promote it (runbook promote), and repair this host as its mirror"
    )


def _has_log(repository: Path, log: Sequence[bytes]) -> bool:
    return _log(repository) == log


def _log(repository: Path) -> list[bytes]:
    """Read the lines of a push log. Raises PushlogError if the last line is incomplete."""
    log = repository / ".hg/store" / log_file.NAME
    lines = [line for _, line in log_file.lines(log)]
    size = log.stat().st_size if log.exists() else 0
    if size != sum(len(line) + 1 for line in lines):
        raise PushlogError(
            f"{log}: an incomplete record follows record {len(lines)}; `hgfleet pushlog verify` "
            "shows more (runbook pushlog)"
        )
    return lines


def _demand(copy: Path) -> None:
    """Raise HostError unless a repository verifies, which includes the heads of its last record."""
    if problem := check(copy):
        raise HostError(
            f"{copy}: rebuilt, it is corrupt as well: {problem}; where a mirror is good, promote "
            "it (runbook promote), and repair this host as its mirror"
        )

"""`hgfleet repo restore PATH --at TIME`: a copy of a repository as of a time.

The copy has the state after the last push up to this time, also between two backups. It is placed
next to the running repository.

The copy is verified and compared with the running repository. `--in-place` then gives the running
repository the state of the copy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup.restic.settings import DEFAULT_PATH, load
from hgfleet.backup.restores import history, restore
from hgfleet.core import identity
from hgfleet.core.errors import HgfleetError, RegistryError, UsageError
from hgfleet.core.principal import operator
from hgfleet.pushlog import log_file
from hgfleet.registry import owned_files
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model.repository_hgrc import settings as settings_of

if TYPE_CHECKING:
    import argparse

    from hgfleet.backup.restic.settings import Settings
    from hgfleet.backup.restores.history import Difference, History
    from hgfleet.backup.restores.restore import Restored
    from hgfleet.registry.model.registry import Repository

BESIDE: Final = ".restore"
"""Folder of restored copies, below the folder of all repositories; nothing in it is served."""

HEADS: Final = 20
"""Number of heads that are listed of each side; the rest is counted."""

FAILED: Final = 71
"""Exit code: the running repository cannot be read."""

_TEMPLATE: Final = "{node} {p1node} {p2node}\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a restore from a backup."""
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="restore a copy with the state after the last push up to this time, from a backup; "
        "such as 2026-11-24T14:30:05, or `now` for the newest backup",
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="then give the running repository the state of the copy; changesets that it loses "
        "stay in .hg/strip-backup",
    )
    parser.add_argument(
        "--backup-config",
        type=Path,
        default=DEFAULT_PATH,
        metavar="FILE",
        help=f"settings of backup ({DEFAULT_PATH})",
    )


def run(path: str, at: str, options: argparse.Namespace) -> int:
    """Restore a copy of a repository, compare both, and take the state of the copy if asked."""
    from hgfleet.backup.restic.restic import Restic

    settings = load(options.backup_config)
    in_place = options.in_place
    running = settings.repositories / path
    if in_place and not (running / ".hg").is_dir():
        raise UsageError(
            f"{path}: no such repository on this host, so nothing is replaced; `hgfleet backup "
            f"restore {path} --to {running}` restores a lost repository to its place"
        )
    entry = _entry(path, options) if in_place else None
    wanted = restore.Wanted(path, identity.of(running) or _registered(path, options))
    moment = None if at == "now" else restore.moment(at)
    restic, copy = Restic(settings), beside(settings, path)
    if moment is None:
        restored = restore.restore(settings, restic, wanted, copy)
    else:
        restored = restore.restore_at(settings, restic, wanted, copy, moment)
    describe(restored)
    if not (running / ".hg").is_dir():
        print(f"{path}: not on this host; to take the copy: mv {restored.folder} {running}")
        return 0
    change = compare(settings, running, restored, moment)
    if change is None:
        print(f"to repair it: hgfleet integrity repair {path}")
    elif in_place:
        return _take(settings, running, restored, Path(options.hgrc), entry)
    elif change:
        print(f"to take this state: hgfleet repo restore {path} --at {at} --in-place")
    print(f"to remove the copy: rm -r {restored.folder}")
    return FAILED if change is None and in_place else 0


def beside(settings: Settings, path: str) -> Path:
    """Return the folder of a new copy; only the owner can open the folder of all copies (I/O)."""
    folder = settings.repositories / BESIDE
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    if os.geteuid() == 0:
        restore.give(folder, settings.owner, whole=False)
    # A path has slashes. Without them the copy is a single folder, which its owner can remove.
    return folder / f"{path.replace('/', '+')}@{datetime.now(UTC):%Y%m%dT%H%M%S}"


def describe(restored: Restored) -> None:
    """Print where a copy is, and which state it has."""
    point = restored.point
    print(
        f"{restored.folder}: {point.changesets} changesets up to push {point.push_id}, verified, "
        f"from the backup of {restored.snapshot.time[:19]}"
        + (f", of repository {point.identity}" if point.identity else "")
    )
    for reason in restored.passed_over:
        print(f"passed over: the backup of {reason}")


def compare(
    settings: Settings, running: Path, restored: Restored, at: float | None = None
) -> Difference | None:
    """Print the heads that are not in both repositories; return the difference.

    Return None if the running repository cannot be read.
    """
    try:
        there = _history(settings, running)
        log = running / ".hg/store" / log_file.NAME
        records = (entry.record for entry in log_file.entries(log))
        before, after = history.later(records, restored.point.push_id, at)
    except HgfleetError as error:
        print(f"the running repository cannot be compared: {error}")
        return None
    change = history.difference(there, _history(settings, restored.folder))
    if at is not None:
        print(f"pushes up to that time that the copy misses: {before}; later pushes: {after}")
    for sign, side, nodes in (
        ("-", "the backup", change.missing_heads),
        ("+", "the running repository", change.extra_heads),
    ):
        for node in nodes[:HEADS]:
            print(f"{sign} {node}  a head of {side} only")
        if len(nodes) > HEADS:
            print(f"{sign} and {len(nodes) - HEADS} more heads of {side} only")
    if change:
        print(f"changesets of the backup only: {len(change.missing)}")
        print(f"changesets of the running repository only: {len(change.extra)}")
    else:
        print("the running repository has the same changesets")
    return change


def _history(settings: Settings, folder: Path) -> History:
    return history.parse(
        restore.hg(settings, folder, "log", "--hidden", "-r", "all()", "-T", _TEMPLATE).splitlines()
    )


def _registered(path: str, options: argparse.Namespace) -> str:
    """Return the identity of the repository that the registry has at a path; "" if it has none."""
    try:
        registry = user_repositories.load_effective(options.registry, options.dynamic)
    except RegistryError:
        return ""
    entry = registry.repositories.get(path)
    return entry.identity if entry else ""


def _entry(path: str, options: argparse.Namespace) -> Repository:
    """Return the entry of a repository in service. Raises UsageError."""
    registry = user_repositories.load_effective(options.registry, options.dynamic)
    entry = registry.repositories.get(path)
    if entry is None:
        raise UsageError(
            f"{path}: not in service, so nothing is replaced; `hgfleet repo restore {path}` brings "
            "an archived repository back"
        )
    return entry


def _take(
    settings: Settings, running: Path, restored: Restored, hgrc: Path, entry: Repository | None
) -> int:
    from hgfleet.backup.restores.in_place import take

    assert entry is not None
    owned_files.become(settings.owner)
    change = take(running, restored.folder, hgrc, operator(), settings_of(entry))
    print(
        f"{running}: has the state of the copy; changesets added: {len(change.missing)}, "
        f"removed: {len(change.extra)}"
        + (f", kept in {running}/.hg/strip-backup" if change.extra else "")
    )
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(restored.folder)
    return 0

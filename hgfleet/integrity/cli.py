"""`hgfleet integrity`: verify the repositories of this host on schedule, show and repair them."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import UsageError
from hgfleet.core.paths import REPOSITORIES
from hgfleet.core.report import Report
from hgfleet.core.subcommands import add_command, add_format
from hgfleet.integrity import plan, state

if TYPE_CHECKING:
    from hgfleet.backup.restic.settings import Settings as Backup
    from hgfleet.replication.protocol.settings import Settings as Replication

CORRUPT: Final = 65
"""Exit code: a repository is corrupt."""

FAILED: Final = 71
"""Exit code: a repository could not be verified."""

_EPILOG: Final = """\
examples:
  hgfleet integrity status                   which repositories are corrupt, or were not verified
  hgfleet integrity run                      verify the repositories whose turn it is
  hgfleet integrity run team/tool            verify this repository now
  hgfleet integrity repair team/tool         replace it by a good copy: on a mirror, a copy of the
                                             primary; elsewhere the newest backup and later pushes

exit codes: 0 all is well, 65 a repository is corrupt, 71 a repository could not be verified,
75 another run is under way.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `integrity` and its commands."""
    parser = subparsers.add_parser(
        "integrity",
        help="verify the repositories of this host on schedule, and repair corrupt repositories",
        description="hg verify of every repository on this host's disk, a share each night.",
        epilog=_EPILOG,
    )
    parser.add_argument("--root", type=Path, default=Path(REPOSITORIES), metavar="FOLDER")
    parser.add_argument("--state", type=Path, default=state.FOLDER, metavar="FOLDER")
    parser.add_argument("--user", default="hg", help="owner of the repositories (hg)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = add_command(commands, "run", "verify the repositories whose turn it is", _run)
    run.add_argument("repositories", nargs="*", metavar="REPO", help="verify these")
    run.add_argument(
        "--days", type=_days, metavar="N", help="each repository is verified within N days"
    )
    add_format(run)
    status = add_command(
        commands, "status", "show corrupt repositories, and late verifications", _status
    )
    status.add_argument("--json", action="store_true", help="print the state file as it is")
    repair = add_command(commands, "repair", "replace a corrupt repository by a good copy", _repair)
    repair.add_argument("repository", metavar="REPO", help="path, as in the registry")
    add_format(repair)


def _days(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 3650:
        raise argparse.ArgumentTypeError("expected a number of days, 1 to 3650")
    return number


def _run(options: argparse.Namespace) -> int:
    from hgfleet.integrity import run
    from hgfleet.registry import owned_files

    _make_folder(options)
    owned_files.become(options.user)
    report = Report(options.format, part="integrity")
    started = time.monotonic()
    days = options.days or state.load(options.state).days
    outcome = run.run(options.root, options.state, report, days, options.repositories)
    report.summary(
        f"corrupt: {', '.join(outcome.corrupt) or 'none'}; not verified: {len(outcome.failed)}",
        corrupt=len(outcome.corrupt),
        repositories=",".join(outcome.corrupt),
        failed=len(outcome.failed),
        seconds=time.monotonic() - started,
    )
    return CORRUPT if outcome.corrupt else FAILED if outcome.failed else 0


def _make_folder(options: argparse.Namespace) -> None:
    """Make the folder of the state; the unit of the schedule has it already."""
    if options.state.exists() or os.geteuid() != 0:
        return
    from hgfleet.registry import owned_files

    own = owned_files.owner(options.user, options.user)
    options.state.mkdir(mode=0o755)
    os.chown(options.state, own.uid, own.gid)


def _status(options: argparse.Namespace) -> int:
    current = state.load(options.state)
    if options.json:
        print(json.dumps(current.data(), sort_keys=True))
    else:
        for line in plan.sentences(
            current.repositories, current.ended, days=current.days, now=time.time()
        ):
            print(line)
    return CORRUPT if plan.corrupt(current.repositories) else 0


def _repair(options: argparse.Namespace) -> int:
    from hgfleet.integrity import repair, run

    path = options.repository
    if not (options.root / path / ".hg").is_dir():
        raise UsageError(
            f"{path}: no repository on this host; `hgfleet backup restore {path} --to "
            f"{options.root / path}` restores a lost repository"
        )
    _make_folder(options)
    report = Report(options.format, part="integrity")
    source = repair.repair(path, _replication(), _backup())
    report.step("repaired", path, f"repaired {source}", source=source)
    days = state.load(options.state).days
    outcome = run.run(options.root, options.state, report, days, [path])
    return CORRUPT if path in outcome.corrupt else FAILED if outcome.failed else 0


def _replication() -> Replication | None:
    from hgfleet.replication.protocol import settings

    return settings.load() if settings.DEFAULT_PATH.exists() else None


def _backup() -> Backup | None:
    from hgfleet.backup.restic import settings

    return settings.load(settings.DEFAULT_PATH) if settings.DEFAULT_PATH.exists() else None

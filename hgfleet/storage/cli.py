"""`hgfleet storage`: move repositories to the current storage format while they are in use."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.core import paths, subcommands
from hgfleet.core.errors import HgfleetError, UsageError
from hgfleet.core.report import Report
from hgfleet.core.text import size
from hgfleet.registry.dynamic import user_repositories
from hgfleet.storage import plan, repository_formats, work_folder
from hgfleet.storage.repository_formats import Action
from hgfleet.storage.upgrade import Fleet, Upgrade, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.storage.plan import Candidate
    from hgfleet.storage.upgrade import Outcome

_EPILOG = """\
examples:
  hgfleet storage status                   the format of every repository
  hgfleet storage plan                     the upgrades that are due, their room and time
  hgfleet storage upgrade                  all repositories that need it, one after the other
  hgfleet storage upgrade --jobs 4         four at the same time
  hgfleet storage upgrade team/project     only this repository
  hgfleet storage upgrade --dry-run        the plan

A new store is written next to the old store, compared with it, and put in its place in one step.
Readers are not interrupted; a push normally waits for less than a second. It runs on an SSH host,
as root, and works with the rights of hg. It can be stopped or killed at any moment: the next run
goes on. If any repository failed, it exits with the code of the failure; the others are done all
the same.
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet storage` and its commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "storage",
        help="move repositories to the current storage format",
        description="Storage formats: zstd, and the other requirements of new repositories.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    _command(
        commands,
        "plan",
        "show which repositories need an upgrade, with reasons, room and time",
        "hgfleet storage plan team/project",
        _plan,
    )
    status = _command(
        commands, "status", "show the format of repositories", "hgfleet storage status", _status
    )
    status.add_argument("--json", action="store_true", help="for programs; sizes are in bytes")
    upgrade = _command(
        commands,
        "upgrade",
        "move repositories to the format of new repositories",
        "hgfleet storage upgrade --jobs 2 --keep-backup 7",
        _upgrade,
    )
    upgrade.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    upgrade.add_argument(
        "--jobs", type=_count, default=1, metavar="N", help="repositories at the same time (1)"
    )
    backups = upgrade.add_mutually_exclusive_group()
    backups.add_argument(
        "--keep-backup",
        type=float,
        metavar="DAYS",
        help="leave old stores in .hg/storage-upgrade for so long; the first run after that "
        "removes them, no earlier run does (default: until their last reader ends)",
    )
    backups.add_argument(
        "--prune-backups",
        action="store_true",
        help="remove old stores before the days of their --keep-backup have passed",
    )
    upgrade.add_argument(
        "--no-measure", action="store_true", help="do not measure bundle and read times"
    )
    subcommands.add_format(upgrade)


def _command(
    commands: Any, name: str, summary: str, example: str, run: Callable[..., int]
) -> argparse.ArgumentParser:
    """Add a command that takes paths of repositories and the paths of the host."""
    command = subcommands.on_repositories(commands, name, summary, example, run)
    for option, default, text in (
        ("--registry", paths.COMPILED, "the compiled registry"),
        ("--dynamic", paths.DYNAMIC, "the user repositories"),
        ("--root", paths.REPOSITORIES, "the folder of all repositories"),
        ("--hgrc", paths.HGRC, "the configuration that hg gets as HGRCPATH"),
    ):
        command.add_argument(option, default=default, metavar="PATH", help=f"{text} ({default})")
    command.add_argument("--user", default="hg", help="owner of the repositories (hg)")
    return command


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("expected 1 or more")
    return number


def _fleet(options: argparse.Namespace) -> Fleet:
    from hgfleet.registry import owned_files

    owned_files.become(options.user)
    return Fleet(Path(options.root), Path(options.hgrc))


def _candidates(
    fleet: Fleet, options: argparse.Namespace, wanted: frozenset[str]
) -> list[Candidate]:
    """Return the named repositories, or all repositories of this host. Raises UsageError."""
    known = user_repositories.load_effective(
        options.registry, options.dynamic, lambda text: print(f"warning: {text}", file=sys.stderr)
    ).repositories
    if unknown := [path for path in options.repositories if path not in known]:
        raise UsageError(
            f"not in the registry: {', '.join(unknown)}; `hgfleet registry show --compiled` and "
            "`hgfleet repo list` show all repositories"
        )
    paths = options.repositories or [
        path for path in known if (fleet.control(path) / "requires").exists()
    ]
    return [fleet.candidate(path, wanted, known[path].identity) for path in paths]


def _plan(options: argparse.Namespace) -> int:
    fleet = _fleet(options)
    return _show_plan(fleet, _candidates(fleet, options, fleet.wanted()))


def _show_plan(fleet: Fleet, candidates: Sequence[Candidate]) -> int:
    due = [candidate for candidate in candidates if candidate.decision.action is Action.UPGRADE]
    for candidate in plan.order(candidates):
        print(f"{candidate.path}: {candidate.decision.action.value}")
        for reason in candidate.decision.reasons:
            print(f"    {reason}")
        if candidate in due:
            took = plan.seconds(candidate.size)
            need = _room(candidate)
            print(f"    store {size(candidate.size)}, {candidate.files:,} files; room for {need}")
            print(f"    about {took:,.0f} s")
            if shortage := plan.Ledger().shortage(candidate, fleet.disk(candidate.path)):
                print(f"    NO ROOM: {shortage}")
    whole = sum(candidate.size for candidate in due)
    print(
        f"{len(due)} of {len(candidates)} repositories need an upgrade: {size(whole)}, "
        f"about {plan.seconds(whole):,.0f} s of a processor"
    )
    return 0


def _room(candidate: Candidate) -> str:
    return size(plan.room(candidate.size))


def _status(options: argparse.Namespace) -> int:
    fleet = _fleet(options)
    candidates = _candidates(fleet, options, fleet.wanted())
    repositories: dict[str, dict[str, Any]] = {}
    for candidate in candidates:
        control = fleet.control(candidate.path)
        try:
            current = sorted(work_folder.requirements(control))
        except HgfleetError:  # the decision has the reason
            current = []
        old = work_folder.measure(control / work_folder.WORK)[0]
        repositories[candidate.path] = {
            "action": candidate.decision.action.value,
            "reasons": list(candidate.decision.reasons),
            "requirements": current,
            "size": candidate.size,
            "old_store": old,
        }
    if options.json:
        print(json.dumps({"format": 1, "repositories": repositories}, indent=1))
        return 0
    rows = [("REPOSITORY", "FORMAT", "SIZE", "STATE")]
    for path, data in repositories.items():
        state = str(data["action"])
        if data["old_store"]:
            state += f"; {size(data['old_store'])} in .hg/{work_folder.WORK}"
        summary = repository_formats.summary(data["requirements"]) if data["requirements"] else "?"
        rows.append((path, summary, size(data["size"]), state))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[3]]))
    return 0


def _upgrade(options: argparse.Namespace) -> int:
    if options.keep_backup is not None and options.keep_backup < 0:
        raise UsageError("--keep-backup: expected a number of days, 0 or more")
    fleet = _fleet(options)
    wanted = fleet.wanted()
    candidates = _candidates(fleet, options, wanted)
    if options.dry_run:
        return _show_plan(fleet, candidates)
    report = Report(options.format, part="storage")
    run = Upgrade(
        fleet,
        report,
        jobs=options.jobs,
        measure=not options.no_measure,
        keep_days=options.keep_backup,
        prune=options.prune_backups,
    )
    outcomes = run.run(candidates)
    for line in table(outcomes, wanted):
        report.note("table", line, line=line)
    return _summary(report, outcomes)


def _summary(report: Report, outcomes: Sequence[Outcome]) -> int:
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    done = sum(1 for outcome in outcomes if outcome.figures.get("changed"))
    names = ", ".join(outcome.path for outcome in failed)
    report.summary(
        f"{len(outcomes)} repositories, {done} upgraded, {len(failed)} failed"
        + (f": {names}" if failed else ""),
        repositories=len(outcomes),
        upgraded=done,
        failed=len(failed),
        failures=names or None,
    )
    codes = {outcome.error.exit_code for outcome in failed if outcome.error is not None}
    # Several kinds of failure only have the exit code 1 in common.
    return codes.pop() if len(codes) == 1 else len(codes) and 1

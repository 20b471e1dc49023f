"""`hgfleet backup`: back up this host, restore it, prove that backups restore, show the gaps."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup.restic.settings import DEFAULT_PATH, load
from hgfleet.core import identity, stored_time
from hgfleet.core.errors import UsageError
from hgfleet.core.report import Report
from hgfleet.core.subcommands import add_command, add_format

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hgfleet.backup.restic.restic import Snapshot
    from hgfleet.backup.restic.settings import Settings

FAILED: Final = 71
"""Exit code: a repository has no backup that can be restored."""

_EPILOG: Final = """\
examples:
  hgfleet backup status                      pushes that would be lost now, by repository
  hgfleet backup run                         back up this host
  hgfleet backup verify                      restore a sample to a sandbox and verify it
  hgfleet backup verify --all                the same for every repository
  hgfleet backup list                        the backups of this host
  hgfleet repo restore team/tool --at 2026-11-24T14:30
                                             next to the running repository, with a diff of heads
  hgfleet backup restore team/tool --to /srv/hg/repos/team/tool
                                             to its place on a host that has lost it
  hgfleet backup restore-host                restore everything to its place on a blank host

on the host that prunes:
  hgfleet backup prune                       remove old backups, and read a part of the others
  hgfleet backup forget hg1 0123abcd         remove a snapshot that a prune refused
  hgfleet backup repair hg1                  remove corrupt packs of hg1

exit codes: 0 all is well, 69 the store of backups does not answer, 71 a repository has no backup
that can be restored.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `backup` and its commands."""
    parser = subparsers.add_parser(
        "backup",
        help="back up this host, restore, and show what would be lost",
        description="Backups of this host, encrypted and deduplicated by restic.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_PATH,
        metavar="FILE",
        help=f"settings of backup ({DEFAULT_PATH})",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_command(commands, "check", "check the settings", _check)
    add_command(commands, "init", "create the restic repository unless it is there", _init)
    add_format(add_command(commands, "run", "back up this host", _run))
    verify = add_command(
        commands, "verify", "restore repositories to a sandbox, verify, remove", _verify
    )
    verify.add_argument("repositories", nargs="*", metavar="REPO", help="these (default: a sample)")
    verify.add_argument("--all", action="store_true", help="every repository")
    add_format(verify)
    _add_prunes(commands)
    add_command(commands, "list", "list the backups of this host", _list)
    status = add_command(commands, "status", "show what would be lost now", _status)
    status.add_argument("--json", action="store_true", help="for programs")
    restore = add_command(commands, "restore", "restore a repository, verified", _restore)
    restore.add_argument("repository", metavar="REPO", help="path, as in the registry")
    restore.add_argument("--at", metavar="TIME", help="the last push up to this time")
    restore.add_argument(
        "--to", type=Path, metavar="FOLDER", help="a folder that does not exist yet"
    )
    restore.add_argument(
        "--identity",
        default="",
        metavar="ID",
        help="identity of a former repository of the path (default: the repository that is there "
        "now, else the repository that the newest backup has there)",
    )
    host = add_command(
        commands, "restore-host", "restore everything to this host, to its place", _host
    )
    add_format(host)
    points = add_command(commands, "points", "print what restore-host would restore", _points)
    for command in (host, points):
        command.add_argument("--at", metavar="TIME", help="the newest backups up to this time")
    files = add_command(
        commands, "restore-files", "restore files of this host below a folder", _files
    )
    files.add_argument("path", help="a file or folder, such as /etc/hgfleet/ssh")
    files.add_argument("--to", type=Path, metavar="FOLDER", required=True)


def _add_prunes(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of the host that prunes."""
    prune = add_command(commands, "prune", "remove old backups of all hosts, read a part", _prune)
    prune.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="HOST",
        help="accept backdated snapshots of HOST as genuine: you have looked at them",
    )
    add_format(prune)
    forget = add_command(commands, "forget", "remove named snapshots of a host, and locks", _forget)
    forget.add_argument("host", metavar="HOST", help="no backup of it may be under way")
    forget.add_argument(
        "snapshots", nargs="*", metavar="SNAPSHOT", help="start of an id (default: locks only)"
    )
    repair = add_command(commands, "repair", "remove corrupt packs of hosts", _repair)
    repair.add_argument("hosts", nargs="*", metavar="HOST", help="of these hosts (default: all)")
    add_format(repair)


def _check(options: argparse.Namespace) -> int:
    load(options.config)
    return 0


def _init(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.restic import Restic

    settings = load(options.config)
    if Restic(settings).create():
        print(f"created {settings.repository}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from hgfleet.backup import run, run_records
    from hgfleet.backup.restic.restic import Restic

    settings = load(options.config)
    report = Report(options.format, part="backup")
    started = time.monotonic()
    restic = Restic(settings)
    if not (settings.state / run_records.RUNS).exists() and restic.create():
        # After the first run a missing repository is a loss, and the run fails so that it is seen.
        report.note("created", f"created {settings.repository}", to=settings.repository)
    outcome = run.Run(settings, restic, report).run()
    for path, reason in sorted(outcome.failed.items()):
        report.step("failed", path, reason, error=reason)
    seconds = time.monotonic() - started
    report.summary(
        f"{len(outcome.done)} repositories, {len(outcome.failed)} failed, "
        f"{outcome.added:,} bytes were new; {seconds:.1f} s",
        repositories=len(outcome.done),
        failed=len(outcome.failed),
        added=outcome.added,
        snapshot=outcome.snapshots[-1],
        rounds=len(outcome.snapshots),
        seconds=seconds,
    )
    run.demand(outcome)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from hgfleet.backup import run_records
    from hgfleet.backup.restic.restic import Restic
    from hgfleet.backup.restores import drill

    settings = load(options.config)
    report = Report(options.format, part="backup")
    known = run_records.load(settings.state, run_records.RUNS).get("repositories", {})
    drills = run_records.load(settings.state, run_records.DRILLS)
    size = len(known) if options.all else settings.sample
    chosen = options.repositories or drill.sample(known, drills, size, time.time())
    failed = drill.drill(settings, Restic(settings), report, chosen)
    report.summary(
        f"{len(chosen)} repositories restored, {len(failed)} of them failed",
        repositories=len(chosen),
        failed=len(failed),
    )
    return FAILED if failed else 0


def _prune(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic import packs
    from hgfleet.backup.restic.prune import prune

    settings = load(options.config)
    if not settings.pruned:
        raise UsageError("this host prunes no backups: backup_prunes is not set for it")
    _demand_pruned(settings, options.accept)
    report = Report(options.format, part="backup")
    failed = prune(settings, report, settings.pruned, accepted=options.accept)
    corrupt = packs.check(settings, report, settings.pruned)
    report.summary(
        f"{len(failed)} hosts failed, {len(corrupt)} have errors in their backups",
        failed=len(failed),
        corrupt=len(corrupt),
    )
    return FAILED if failed or corrupt else 0


def _demand_pruned(settings: Settings, hosts: Sequence[str]) -> None:
    if unknown := [host for host in hosts if host not in settings.pruned]:
        raise UsageError(
            f"{', '.join(unknown)}: this host prunes no backups of it, expected some of "
            f"{', '.join(settings.pruned) or 'none'}"
        )


def _forget(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.prune import forget

    settings = load(options.config)
    _demand_pruned(settings, [options.host])
    removed = forget(settings, options.host, options.snapshots)
    print(
        f"{options.host}: removed {', '.join(name[:8] for name in removed) or 'no snapshot'}, and "
        "the locks that backups left; to look again: systemctl start hgfleet-backup-prune"
    )
    return 0


def _repair(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic import packs

    settings = load(options.config)
    _demand_pruned(settings, options.hosts)
    report = Report(options.format, part="backup")
    failed = packs.repair(settings, report, options.hosts or settings.pruned)
    report.summary(f"{len(failed)} hosts failed", failed=len(failed))
    return FAILED if failed else 0


def _list(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.restic import Restic

    restic = Restic(load(options.config))
    for snapshot in restic.from_future():
        print(f"{_line(snapshot)}; LATER THAN THE CLOCK OF THIS HOST, counts as never made")
    for snapshot in restic.snapshots():
        print(_line(snapshot))
    return 0


def _line(snapshot: Snapshot) -> str:
    tags, paths = ",".join(snapshot.tags), " ".join(snapshot.paths)
    return f"{snapshot.id[:8]}  {snapshot.time[:19]}  {tags}  {paths}"


def _status(options: argparse.Namespace) -> int:
    from hgfleet.backup import exposure, run_records
    from hgfleet.backup.point import capture, consistency
    from hgfleet.pushlog import log_file

    settings = load(options.config)
    runs = run_records.load(settings.state, run_records.RUNS)
    drills = run_records.load(settings.state, run_records.DRILLS)
    state = run_records.load(settings.replication.parent, settings.replication.name)
    mirrors = exposure.complete_mirrors(state)
    rows = [
        exposure.of(
            path,
            log_file.tip(control / "store" / log_file.NAME).id,
            runs.get("repositories", {}).get(path),
            drills.get(path),
            mirrors=len(mirrors),
            now=time.time(),
            drill_days=settings.drill_days,
            has_record=lambda drill, control=control: capture.has_record(  # type: ignore[misc]
                control, int(drill.get("log_end", 0)), str(drill["push_hash"])
            ),
        )
        for path, control in sorted(consistency.find(settings.repositories))
    ]
    if options.json:
        from dataclasses import asdict

        lost = {row.path: asdict(row) for row in rows}
        ended = stored_time.past(float(runs.get("ended") or 0), time.time()) or None
        print(json.dumps({"format": 1, "mirrors": mirrors, "last_run": ended, "lost": lost}))
    else:
        _table(settings, runs, mirrors, rows)
    return FAILED if any(row.reason for row in rows) or runs.get("failed") else 0


def _table(settings: Settings, runs: dict[str, Any], mirrors: list[str], rows: Any) -> None:
    from hgfleet.backup.exposure import sentence

    ended = stored_time.past(float(runs.get("ended") or 0), time.time())
    when = (
        datetime.fromtimestamp(ended, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if ended else "never"
    )
    print(f"last run: {when}, to {settings.repository}")
    print(f"hosts with every push of this host: {', '.join(mirrors) or 'none'}")
    print("pushes that would be lost if this host died, and if the whole site died:")
    for row in rows:
        text = f"{row.path}: host {sentence(row.host)}, site {sentence(row.site)} of {row.pushes}"
        if row.undrilled:
            text += f"; {row.undrilled} of them are in backups since the last drill"
        print(f"  {text}{row.reason and f'; {row.reason}'}")
    for path, reason in sorted(runs.get("failed", {}).items()):
        print(f"  {path}: not in the last run: {reason}")
    print("if that store died: no push, while this host or a mirror lives; every older state")


def _restore(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.restic import Restic
    from hgfleet.backup.restores import repo_restore, restore

    settings = load(options.config)
    path = options.repository
    at = restore.moment(options.at) if options.at else None
    running = settings.repositories / path
    if options.identity and not identity.is_identity(options.identity):
        raise UsageError(f"--identity: got {options.identity!r}, expected 32 hexadecimal digits")
    if problem := restore.target_problem(options.to, running, settings.repositories):
        raise UsageError(problem)
    target = options.to or repo_restore.beside(settings, path)
    restic = Restic(settings)
    wanted = restore.Wanted(path, options.identity or identity.of(running))
    if at is None:
        restored = restore.restore(settings, restic, wanted, target)
    else:
        restored = restore.restore_at(settings, restic, wanted, target, at)
    repo_restore.describe(restored)
    if restored.folder != running and (running / ".hg").is_dir():
        repo_restore.compare(settings, running, restored, at)
    return 0


def _host(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.restic import Restic
    from hgfleet.backup.restores import host, restore

    settings = load(options.config)
    report = Report(options.format, part="backup")
    at = restore.moment(options.at) if options.at else None
    failed = host.restore_host(settings, Restic(settings), report, at)
    report.summary(f"{len(failed)} failed", failed=len(failed))
    return FAILED if failed else 0


def _points(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.restic import Restic
    from hgfleet.backup.restores import host, restore

    settings = load(options.config)
    at = restore.moment(options.at) if options.at else None
    for position in host.positions(settings, Restic(settings), at):
        print(json.dumps(position, sort_keys=True))
    return 0


def _files(options: argparse.Namespace) -> int:
    from hgfleet.backup.restic.restic import Restic
    from hgfleet.backup.run import ALL
    from hgfleet.core.errors import HostError

    restic = Restic(load(options.config))
    newest = next((snapshot for snapshot in restic.snapshots() if ALL in snapshot.tags), None)
    if newest is None:
        raise HostError("no backup of this host; `hgfleet backup run` makes one")
    restic.restore(newest.id, options.path, options.to)
    print(f"{options.to}{options.path}: from the backup of {newest.time[:19]}")
    return 0

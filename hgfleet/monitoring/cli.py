"""`hgfleet metrics`: metrics of this host, for the textfile collector of the node exporter."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core import files
from hgfleet.core.daemons import periodic
from hgfleet.monitoring import facts, families, outdated_units
from hgfleet.monitoring.exposition import render

if TYPE_CHECKING:
    import argparse

    from hgfleet.monitoring.outdated_units import Outdated

_EPILOG = """\
examples:
  hgfleet metrics show                the current metrics
  systemctl reload hgfleet-metrics    write them for the exporter now; the unit runs `serve`
  hgfleet metrics outdated            units that run files which an update has replaced
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `metrics` and its commands."""
    parser = subparsers.add_parser(
        "metrics",
        help="show the metrics of this host",
        description="Metrics of this host, in Prometheus' text format, out of the files in which"
        " its parts record their state. No server is asked.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    show = commands.add_parser("show", help="print them", description="Print the metrics.")
    show.set_defaults(run=_show)
    serve = commands.add_parser(
        "serve",
        help="replace a file with them again and again",
        description="Replace a file with the metrics at once, at intervals, and at each SIGHUP.",
    )
    serve.add_argument("file", type=Path, metavar="FILE")
    serve.add_argument(
        "--every", type=float, default=15, metavar="SECONDS", help="the interval (15)"
    )
    serve.set_defaults(run=_serve)
    outdated = commands.add_parser(
        "outdated",
        help="show units that run files which an update has replaced",
        description="Show units that execute a file which an update has replaced, each with such a"
        " file. Only root sees the processes of all users.",
    )
    outdated.add_argument(
        "--write", type=Path, metavar="FILE", help="write them for the metrics instead"
    )
    outdated.set_defaults(run=_outdated)


def text(root: Path, now: float) -> str:
    """Return the metrics of the host whose files are below a folder."""
    return render(families.of(facts.read(root, now)))


def _show(_options: argparse.Namespace) -> int:
    print(text(Path("/"), time.time()), end="")
    return 0


def outdated_lines(outdated: Outdated) -> list[str]:
    """Return outdated units for a person."""
    lines = [f"{unit}: {path}" for unit, path in outdated.units.items()]
    lines = lines or ["no unit runs a file that an update has replaced"]
    if outdated.unseen:
        lines.append(f"{outdated.unseen} processes were not shown, which takes CAP_SYS_PTRACE")
    return lines


def _outdated(options: argparse.Namespace) -> int:
    outdated = outdated_units.read(Path("/proc"))
    if options.write:
        outdated_units.write(options.write, outdated)
    else:
        print("\n".join(outdated_lines(outdated)))
    return 0


def _serve(options: argparse.Namespace) -> int:
    periodic.repeat(lambda: _write(options.file), options.every)


def _write(file: Path) -> None:
    host = facts.read(Path("/"), time.time())
    files.replace(file, render(families.of(host)), durable=False)
    for source, reason in sorted(host.unreadable.items()):
        # The metric names the source, the journal the reason.
        print(f"<4>{source}: {reason}", flush=True)

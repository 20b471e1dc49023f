"""`hgfleet log`: the log lines of a session, a request or a push, by its id."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HostError
from hgfleet.logs import following, sources

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hgfleet.logs.log_entry import Entry

DAY_SECONDS: Final = 86400

PASSES: Final = 3
"""Searches: from the id of a session to its pushes, from its pushes to other lines, and again."""

NOTHING: Final = 1
"""Exit code where no line has the id."""

_EPILOG = """\
examples:
  hgfleet log 1f2e3d4c5b6a7988                 the lines of a session or a request on this host
  hgfleet log 1f2e3d4c5b6a7988 --days 7        older lines too
  hgfleet log 1f2e3d4c5b6a7988 --format json   one JSON object a line
  hgfleet log 7d0e...a1.42                     of a push, by `push=` of a log line

A pusher reads the id in the last line of a push: "push 42 recorded; ...; id 1f2e3d4c5b6a7988". An
HTTPS client reads it in the header X-Request-ID of an answer. The playbook log.yml asks all hosts.

exit codes: 1 no line has the id, 71 a log of this host cannot be read (be root).
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet log`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "log",
        help="follow a push or a clone through the logs of this host",
        description="Prints the log lines of one session, one request or one push on this host: "
        "of sshd, hg, the relay, the applier, the proxy, nginx and the web workers.",
        epilog=_EPILOG,
    )
    parser.add_argument("names", nargs="+", metavar="ID", help="an id, or the name of a push")
    parser.add_argument(
        "--days",
        type=float,
        default=2.0,
        metavar="N",
        help="look at the logs of so many days (default: %(default)g)",
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="default: %(default)s"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    wanted = following.names(options.names)
    if os.geteuid() != 0:
        raise HostError("got a user other than root, who may not read all logs; run it as root")
    since = max(0.0, time.time() - options.days * DAY_SECONDS)
    entries = follow(wanted, since, Path("/"))
    for entry in entries:
        print(entry.to_json() if options.format == "json" else entry.line())
    if not entries:
        print(_missing(options.names, options.days), file=sys.stderr)
    return 0 if entries else NOTHING


def follow(wanted: frozenset[str], since: float, root: Path) -> list[Entry]:
    """Return the entries of this host since a time (seconds since 1970), in their order."""
    entries: list[Entry] = []
    for _pass in range(PASSES):
        entries = sources.by_names(wanted, since, root)
        known, wanted = wanted, following.more(entries, wanted)
        if wanted == known:
            break
    for connection in following.connections(entries):
        entries += sources.of_connection(connection)
    return following.in_order(entries)


def _missing(given: Sequence[str], days: float) -> str:
    return f"no log line of the last {days:g} days on this host has {' or '.join(given)}"

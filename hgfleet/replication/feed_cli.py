"""`hgfleet events`: the feed of push events on a web host (what the unit hgfleet-events runs)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from hgfleet.core import logfmt, service
from hgfleet.replication.command_line import add_config
from hgfleet.replication.settings import load

SOCKET: Final = Path("/run/hgfleet-events/socket")

_EPILOG = """\
examples:
  systemctl status hgfleet-events
  curl -N https://HOST/api/events?repository=team/tool     the events, as a client reads them
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet events`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "events",
        help="serve push events until stopped",
        description="Serves push events of public repositories to nginx, until stopped.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(parser)
    parser.add_argument(
        "--socket", type=Path, default=SOCKET, metavar="FILE", help="Unix socket (%(default)s)"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from hgfleet.replication.feed_server import FeedServer

    service.run(FeedServer(load(options.config), options.socket, say).run(), say)
    return 0


def say(event: str, **fields: object) -> None:
    """Write one event to the journal."""
    print(logfmt.line(f"events.{event}", **fields), flush=True)

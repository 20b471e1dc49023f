"""`hgfleet events`: the feed of push events on a web host (what the unit hgfleet-events runs)."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt
from hgfleet.replication.command_line import add_config
from hgfleet.replication.settings import load

if TYPE_CHECKING:
    from hgfleet.replication.settings import Settings

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
    asyncio.run(serve(load(options.config), options.socket))
    return 0


async def serve(found: Settings, socket: Path) -> None:
    """Run the server until SIGTERM or SIGINT."""
    from hgfleet.replication.feed_server import FeedServer

    task = asyncio.ensure_future(FeedServer(found, socket, say).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        say("stopped")


def say(event: str, **fields: object) -> None:
    """Write one event to the journal."""
    print(logfmt.line(f"events.{event}", **fields), flush=True)

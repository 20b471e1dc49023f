"""`hgfleet relay`: the relay of a primary (what the unit hgfleet-relay runs)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hgfleet.core import logfmt, service
from hgfleet.replication.command_line import add_config, settings_of
from hgfleet.replication.settings import Role

if TYPE_CHECKING:
    from hgfleet.replication.settings import Settings

_EPILOG = """\
examples:
  systemctl status hgfleet-relay           the relay, and its last events
  cat /run/hgfleet-replication/state.json  the broker, the mirrors, what is not published and why
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet relay`."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "relay",
        help="publish the pushes of this primary until stopped",
        description="Publishes the pushes of this primary to the broker, until stopped.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    reason = "the relay runs where pushes arrive; a mirror has an applier"
    serve(settings_of(options, Role.PRIMARY, reason))
    return 0


def serve(found: Settings) -> None:
    """Run the relay until SIGTERM or SIGINT."""
    from hgfleet.replication import document_watch
    from hgfleet.replication.relay import Relay

    service.run(Relay(found, say, background=[document_watch.watch]).run(), say)


def say(event: str, **fields: object) -> None:
    """Write one event to the journal."""
    print(logfmt.line(f"relay.{event}", **fields), flush=True)

"""`hgfleet replication promote`, `fence` and `positions`: this mirror becomes the primary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.core.errors import ConfigurationError
from hgfleet.registry.owned_files import become
from hgfleet.replication.settings import Role, load

if TYPE_CHECKING:
    import argparse


def add_commands(commands: Any) -> None:
    """Add the commands to those of `hgfleet replication`."""
    promote = commands.add_parser(
        "promote",
        help="begin the next term, with this mirror as the primary",
        description="Refuses while another place has an acknowledged push that this mirror does "
        "not have. playbooks/promote.yml runs it, and changes the roles of the hosts.",
    )
    promote.add_argument("--dry-run", action="store_true", help="check, and change nothing")
    promote.add_argument(
        "--accept-loss",
        action="append",
        default=[],
        metavar="PATH@ID",
        help="give up these pushes: PATH@ID or PATH@FIRST-LAST; may be repeated",
    )
    promote.add_argument(
        "--positions",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="output of `hgfleet replication positions` on other hosts, - for standard input; may "
        "be repeated",
    )
    promote.set_defaults(run=_promote)
    fence = commands.add_parser("fence", help="have this host refuse all pushes")
    fence.add_argument("--lift", action="store_true", help="have it take pushes again")
    fence.set_defaults(run=_fence)
    positions = commands.add_parser("positions", help="print how far this host is, as JSON lines")
    positions.set_defaults(run=_positions)


def _promote(options: argparse.Namespace) -> int:
    import asyncio

    from hgfleet.replication import connection, promoting, promotion
    from hgfleet.replication.source_client import SourceClient

    settings = load(options.config)
    accepted = [promotion.parse_accepted(text) for text in options.accept_loss]
    elsewhere = [one for file in options.positions for one in promoting.read_positions(file)]
    source = None
    if settings.primary != settings.host:
        source = SourceClient(settings)
        # root alone reads the key.
        source.read_certificates()
    tls = connection.tls(settings)
    become(settings.repositories.owner())
    run = promoting.Promotion(settings, source, elsewhere, accepted, print)
    term = asyncio.run(run.run(tls, dry_run=options.dry_run))
    did = "would be" if options.dry_run else "is"
    print(f"{term.primary} {did} the primary of epoch {term.epoch}")
    return 0


def _fence(options: argparse.Namespace) -> int:
    from hgfleet.replication import fencing

    settings = load(options.config)
    become(settings.repositories.owner())
    if not options.lift:
        fencing.fence(
            settings,
            f"{settings.host} takes no pushes: operators make another host the primary; try again "
            "in some minutes",
        )
        print(f"{settings.host} refuses pushes")
        return 0
    epoch, primary = fencing.own(settings)
    if settings.role is Role.PRIMARY and primary not in ("", settings.host):
        raise ConfigurationError(
            f"{primary} is the primary since epoch {epoch}: the fence of {settings.host} stays; "
            f"promote {settings.host} (runbook promote)"
        )
    fencing.lift(settings)
    print(f"{settings.host} has no fence")
    return 0


def _positions(options: argparse.Namespace) -> int:
    from hgfleet.replication import promoting

    for one in promoting.positions(load(options.config)):
        print(json.dumps(one, sort_keys=True))
    return 0

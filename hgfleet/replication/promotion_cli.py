"""`hgfleet replication promote`, `new-term`, `fence` and `positions`: terms of the primary."""

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
    add_losses(promote)
    promote.set_defaults(run=_promote)
    term = commands.add_parser(
        "new-term",
        help="begin the next term of this primary, after it was restored from a backup",
        description="Records of the next term are told apart from the pushes that the backup did "
        "not have. Refuses while another place has an acknowledged push that this primary does not "
        "have. Run it with the relay stopped.",
    )
    add_losses(term)
    term.set_defaults(run=_new_term)
    fence = commands.add_parser("fence", help="have this host refuse all pushes")
    fence.add_argument("--lift", action="store_true", help="have it take pushes again")
    fence.set_defaults(run=_fence)
    positions = commands.add_parser("positions", help="print how far this host is, as JSON lines")
    positions.set_defaults(run=_positions)


def add_losses(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that begins a term."""
    parser.add_argument("--dry-run", action="store_true", help="check, and change nothing")
    parser.add_argument(
        "--accept-loss",
        action="append",
        default=[],
        metavar="PATH@ID",
        help="give up these pushes: PATH@ID or PATH@FIRST-LAST; may be repeated",
    )
    parser.add_argument(
        "--positions",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="output of `hgfleet replication positions` on other hosts, - for standard input; may "
        "be repeated",
    )


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


def _new_term(options: argparse.Namespace) -> int:
    import asyncio

    from hgfleet.replication import connection, lifting, promoting, promotion

    settings = load(options.config)
    if settings.role is not Role.PRIMARY:
        raise ConfigurationError(
            f"{settings.host} is a mirror, expected the primary {settings.primary}; a mirror "
            "becomes the primary by `hgfleet replication promote` (runbook promote)"
        )
    accepted = [promotion.parse_accepted(text) for text in options.accept_loss]
    elsewhere = [one for file in options.positions for one in promoting.read_positions(file)]
    tls = connection.tls(settings)
    become(settings.repositories.owner())
    run = promoting.Promotion(settings, None, elsewhere, accepted, print, again=True)
    # No push is on its way to a primary.
    run.patience = 0.0
    term = asyncio.run(run.run(tls, dry_run=options.dry_run))
    if not options.dry_run:
        for path in lifting.lift_decided(settings):
            print(f"{path} takes pushes again")
    did = "would begin" if options.dry_run else "has begun"
    print(f"epoch {term.epoch} of {term.primary} {did}")
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

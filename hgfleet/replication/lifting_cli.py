"""`hgfleet replication fences` and `lift`: repositories of the primary that take no pushes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hgfleet.registry.owned_files import become
from hgfleet.replication.command_line import settings_of
from hgfleet.replication.settings import Role

if TYPE_CHECKING:
    import argparse

_REASON = "only the primary fences repositories: it is where pushes arrive"


def add_commands(commands: Any) -> None:
    """Add the commands to those of `hgfleet replication`."""
    fences = commands.add_parser(
        "fences",
        help="list the repositories of this primary that take no pushes, and why",
        description="Exit code 65 if there is one.",
    )
    fences.add_argument("--json", action="store_true", help="print a JSON line for each")
    fences.set_defaults(run=_fences)
    lift = commands.add_parser(
        "lift",
        help="have a fenced repository take pushes again",
        description="Lifts the fence where the push log has the missing push again, and bookmarks "
        "are where its records moved them. Where the push log does not have it, the missing pushes "
        "have to be given up by name; that begins a new term of this primary, and mirrors park the "
        "repository until `hgfleet replication resync` there.",
    )
    lift.add_argument("repository", metavar="REPO", help="its path, or its identity")
    lift.add_argument(
        "--accept-loss",
        action="append",
        default=[],
        metavar="PATH@ID",
        help="give up these pushes: PATH@ID or PATH@FIRST-LAST; may be repeated",
    )
    lift.set_defaults(run=_lift)


def _fences(options: argparse.Namespace) -> int:
    from hgfleet.replication import repository_fences

    settings = settings_of(options, Role.PRIMARY, _REASON)
    fences = repository_fences.read(settings.terms)
    for fenced in fences.values():
        is_json = options.json
        line = json.dumps(asdict(fenced)) if is_json else f"{fenced.path}: {fenced.operators}"
        print(line)
    if not fences and not options.json:
        print("no repository is fenced")
    return 65 if fences else 0


def _lift(options: argparse.Namespace) -> int:
    import asyncio

    from hgfleet.replication import connection, lifting, promotion

    settings = settings_of(options, Role.PRIMARY, _REASON)
    accepted = [promotion.parse_accepted(text) for text in options.accept_loss]
    tls = connection.tls(settings)
    become(settings.repositories.owner())
    fenced = lifting.named(settings, options.repository)
    term = asyncio.run(lifting.lift(settings, tls, fenced, accepted))
    print(f"{fenced.path} takes pushes again")
    if term is not None:
        print(
            f"epoch {term.epoch} has begun; on each mirror: `hgfleet replication resync "
            f"{fenced.path}`"
        )
    return 0

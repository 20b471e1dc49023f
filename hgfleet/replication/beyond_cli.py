"""`hgfleet replication beyond`: what this mirror has beyond a backup of the primary."""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.registry.owned_files import become
from hgfleet.replication.settings import load

if TYPE_CHECKING:
    import argparse

    from hgfleet.replication.jobs import Place
    from hgfleet.replication.settings import Settings


def add_commands(commands: Any) -> None:
    """Add the command to those of `hgfleet replication`."""
    beyond = commands.add_parser(
        "beyond",
        help="list what this mirror has beyond a backup of the primary",
        description="Compare this mirror with a backup, as `hgfleet backup points` prints it on "
        "the primary. Prints a sentence for each repository of which this mirror has more; nothing "
        "where the backup has all. Repositories that were deleted since are told as errors are, "
        "and refuse nothing. playbooks/restore.yml asks every mirror.",
    )
    beyond.add_argument("points", type=Path, metavar="FILE", help="of the backup; - for input")
    beyond.add_argument(
        "--accept-loss",
        action="append",
        default=[],
        metavar="PATH@ID",
        help="leave out these pushes: PATH@ID or PATH@FIRST-LAST; may be repeated",
    )
    beyond.set_defaults(run=_beyond)


def _beyond(options: argparse.Namespace) -> int:
    from hgfleet.replication import beyond, places, promoting, promotion
    from hgfleet.replication.served import Served

    settings = load(options.config)
    accepted = [promotion.parse_accepted(text) for text in options.accept_loss]
    backup = promoting.read_positions(options.points)
    become(settings.repositories.owner())
    served = Served(settings, lambda _: None)
    found = {**_aside(settings), **places.find(settings.repositories)}
    made = beyond.beyond(
        backup,
        {identity: place.tip for identity, place in found.items()},
        # Without the registry, nothing tells what was created and deleted.
        served.paths(),
        served.purged(),
        lambda identity, number: hash_at(settings, found[identity].path, number),
    )
    left = beyond.refused(made, lambda loss: not promotion.refused([loss], accepted))
    for line in beyond.sentences(settings.host, left):
        print(line)
    # The play takes each line of the output for a refusal.
    for line in beyond.sentences(settings.host, [one for one in made if one.is_note]):
        print(line, file=sys.stderr)
    return 0


def _aside(settings: Settings) -> dict[str, Place]:
    """Return the repositories that this mirror has out of service, by identity (I/O)."""
    from hgfleet.core.errors import PushlogError
    from hgfleet.pushlog import log_file
    from hgfleet.replication import places
    from hgfleet.replication.jobs import Place

    root, found = settings.repositories, {}
    for place in places.away(root):
        folder = places.folder(root, place)
        if folder is None or not folder.identity:
            continue
        with contextlib.suppress(OSError, PushlogError):
            tip = log_file.tip(root / place / places.STORE / log_file.NAME)
            found[folder.identity] = Place(place, tip)
    return found


def hash_at(settings: Settings, path: str, number: int) -> str:
    """Return the hash of a record of a repository, "" where its log is shorter (I/O)."""
    from hgfleet.pushlog import log_file
    from hgfleet.pushlog.record import hash_of

    log = settings.repositories / path / ".hg/store" / log_file.NAME
    line = next(itertools.islice(log_file.lines(log), number - 1, number), None)
    return hash_of(line[1]) if line is not None else ""

"""Pushes that an earlier release gave up: named once, when the brokers confirm this primary.

A term that an earlier release began has no file of pushes that were given up: pushes of the brokers
beyond the logs were given up when that term began. While this is only concluded from the epochs of
pushes, a power cut that loses a push of an earlier epoch looks the same, and the log forks
unnoticed. So the relay names those pushes by identity, number and hash before it publishes
anything; from then on an unnamed push fences its repository.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.core import files
from hgfleet.core.errors import HgfleetError, HostError, RegistryError
from hgfleet.replication.mirror import places
from hgfleet.replication.promotion import streamed_pushes
from hgfleet.replication.repositories import log_reader
from hgfleet.replication.terms import given_up, repository_fences
from hgfleet.replication.terms.term_lock import alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.js import JetStreamContext

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.repositories.served import Served
    from hgfleet.replication.terms.given_up import GivenUp
    from hgfleet.replication.terms.losses import Known


async def settle(
    settings: Settings,
    api: JetStreamContext,
    served: Served,
    epoch: int,
    say: Callable[..., None],
) -> None:
    """Name the pushes that terms of earlier releases gave up, unless this was done (I/O).

    `epoch` is the epoch of the confirmed term. Raises TemporaryError and the errors of nats-py.
    """
    try:
        if given_up.load(settings.terms).is_settled(epoch):
            return
        async with alone(settings.terms):
            known = given_up.load(settings.terms)
            if known.is_settled(epoch):
                return
            paths, purged = await asyncio.to_thread(lambda: (served.paths(), served.purged()))
            streamed = await streamed_pushes.last(api, paths, purged)
            pushes = await asyncio.to_thread(_beyond, settings, known, streamed, epoch)
            settled = replace(known.adding(epoch, pushes), former=given_up.NONE)
            await asyncio.to_thread(files.replace, settings.terms / given_up.FILE, settled.text())
    except (HostError, RegistryError, OSError) as error:
        # The publication of each repository reports it too; the next connection tries again.
        say("former-terms-unnamed", reason=str(error))
    else:
        say("former-terms-named", pushes=len(pushes))


def _beyond(
    settings: Settings, known: GivenUp, streamed: list[Known], epoch: int
) -> list[tuple[str, int, str]]:
    """Return the pushes of earlier terms that the logs of this host do not have (I/O).

    For a repository without a folder, or with a fence, an earlier term decided nothing.
    """
    root = settings.repositories
    placed = places.find(root)
    fenced = repository_fences.read(settings.terms)

    def hash_at(identity: str, number: int) -> str:
        try:
            entry = log_reader.find(log_reader.store_of(root, placed[identity].path), number)
        except (HgfleetError, OSError):
            return ""
        return entry.hash if entry is not None else ""

    former = [
        push
        for push in streamed
        if push.repository in placed
        and push.repository not in fenced
        and known.has(push.repository, push.id, push.hash, push.epoch, current=epoch)
    ]
    tips = {identity: place.tip for identity, place in placed.items()}
    return given_up.beyond(tips, former, hash_at)

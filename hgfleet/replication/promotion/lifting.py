"""Lifting the fence of a repository: its log has the lost push again, or operators give it up.

To give pushes up begins a new term. So the epochs distinguish later records from the lost pushes,
in the brokers, on mirrors and for consumers of events.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HgfleetError, UsageError
from hgfleet.replication.promotion import bookmarks
from hgfleet.replication.protocol.connection import asking
from hgfleet.replication.repositories import log_reader
from hgfleet.replication.repositories.served import Served
from hgfleet.replication.terms import (
    broker_terms,
    given_up,
    host_terms,
    losses,
    repository_fences,
    term_lock,
)
from hgfleet.replication.terms.losses import Loss

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.promotion.bookmarks import Stale
    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.terms.host_terms import Term
    from hgfleet.replication.terms.losses import Accepted
    from hgfleet.replication.terms.repository_fences import Fenced

ANSWER_SECONDS: Final = 10.0


class FenceStaysError(HgfleetError):
    """A fence cannot be lifted: pushes would be lost that were not given up."""

    exit_code = 65


def named(settings: Settings, name: str) -> Fenced:
    """Return the fence of a repository, by its path or identity (I/O). Raises UsageError.

    A present path is preferred to the path in the fence, which a repository out of service keeps.
    """
    fences = repository_fences.read(settings.terms)
    if name in fences:
        return fences[name]
    served = _served(settings).paths()
    matching = [key for key, path in served.items() if path == name]
    if not matching:
        away = {key: fenced.path for key, fenced in fences.items() if key not in served}
        matching = [key for key, path in away.items() if path == name]
    if len(matching) == 1 and matching[0] in fences:
        return fences[matching[0]]
    named = [f"{served.get(key, fenced.path)} ({key})" for key, fenced in fences.items()]
    listed = ", ".join(named) or "none"
    raise UsageError(f"got {name!r}, expected a fenced repository of this host: {listed}")


def is_back(settings: Settings, fenced: Fenced) -> bool:
    """Whether the log of a repository has the push that was missing (I/O).

    Raises RegistryError, PushlogError, TemporaryError and OSError.
    """
    if not fenced.number:
        return False
    entry = _entry(settings, fenced)
    return entry is not None and fenced.hash in ("", entry.hash)


def _entry(settings: Settings, fenced: Fenced) -> Entry | None:
    path = _served(settings).place(fenced.repository)
    if path is None:
        return None
    store = log_reader.store_of(settings.repositories, path)
    return log_reader.find(store, fenced.number)


def _stale_bookmarks(settings: Settings, fenced: Fenced) -> list[Stale]:
    path = _served(settings).place(fenced.repository)
    return [] if path is None else bookmarks.find_stale(settings.repositories / path)


def _served(settings: Settings) -> Served:
    return Served(settings, lambda _: None)


def loss_of(settings: Settings, fenced: Fenced) -> Loss:
    """Return the pushes that are lost if the fence is lifted now (I/O)."""
    path = _served(settings).path(fenced.repository) or fenced.path
    last = max(fenced.number, 1)
    # The log may have other pushes with some of these numbers.
    first = min(fenced.here + 1, last)
    return Loss(path, fenced.repository, first, last, "the brokers")


async def lift(
    settings: Settings, tls: ssl.SSLContext | None, fenced: Fenced, accepted: Sequence[Accepted]
) -> Term | None:
    """Lift a fence; return the new term if pushes were given up for it.

    Raises FenceStaysError, UnavailableError, ClaimedError, TemporaryError and the errors of
    `is_back`.
    """
    async with term_lock.alone(settings.terms):
        if repository_fences.find(settings.terms, fenced.repository) is None:
            # Another command has lifted it in the meantime.
            return None
        return await _lift(settings, tls, fenced, accepted)


async def _lift(
    settings: Settings, tls: ssl.SSLContext | None, fenced: Fenced, accepted: Sequence[Accepted]
) -> Term | None:
    # The fence stands because a published push was missing in the log of this host. It is lifted
    # in two cases: the log has the push again, and bookmarks are where the records moved them; or
    # the operator has accepted the loss of every missing push, and a new term begins. Lifting is
    # the last step, so after a kill the fence still stands, and the command can be repeated.
    term = None
    if await asyncio.to_thread(is_back, settings, fenced):
        if stale := await asyncio.to_thread(_stale_bookmarks, settings, fenced):
            raise FenceStaysError(
                f"{fenced.path}: the push log has push {fenced.number} again, but not all "
                f"bookmarks are where its records moved them ({stale[0]}): copy `.hg/bookmarks` "
                "from the host that the store came from (runbook hgfleet-relay)"
            )
    else:
        loss = await asyncio.to_thread(loss_of, settings, fenced)
        if losses.refused([loss], accepted):
            ids = str(loss.last) if loss.first == loss.last else f"{loss.first}-{loss.last}"
            raise FenceStaysError(
                f"{loss.path}: push {ids} is known to the brokers and to mirrors, but the log of "
                "this host does not have it: bring it back (runbook hgfleet-relay), or give it up "
                f"with --accept-loss {loss.path}@{ids}"
            )
        term = await _next_term(settings, tls, fenced)
    repository_fences.lift(settings.terms, fenced.repository)
    return term


async def _next_term(settings: Settings, tls: ssl.SSLContext | None, fenced: Fenced) -> Term:
    async with asking(settings, "hgfleet replication", tls) as client:
        api = client.jetstream(timeout=ANSWER_SECONDS)
        last = await broker_terms.last(api)
        if last.term is not None and last.term.primary != settings.host:
            raise FenceStaysError(
                f"{last.term.primary} has been the primary of this site since epoch "
                f"{last.term.epoch}, not {settings.host}; see the runbook promote"
            )
        current = max(host_terms.own(settings)[0], last.term.epoch if last.term else 1)
        epoch = max(current, fenced.epoch) + 1
        term = broker_terms.made(epoch, settings.host, host_terms.address_of(settings.hgrc))
        # Write the epoch first: a relay that hears of a later epoch than in the file takes all
        # pushes of earlier epochs for given up.
        given_up.begin(settings.terms, term.epoch, current)
        await broker_terms.add(api, term, last.sequence)
    host_terms.remember(settings, term)
    # Write the push only now, so that a command that fails, or is killed, gives nothing up. Until
    # the fence is lifted, the relay publishes nothing of the repository.
    push = fenced.repository, fenced.number, fenced.hash
    given_up.note(settings.terms, term.epoch, [push])
    return term


def lift_decided(settings: Settings) -> list[str]:
    """Lift the fences whose pushes are back or were given up; return the paths (I/O).

    A fence stays if the push is back without its bookmarks: `lift` names them. A repository that
    cannot be read stays fenced, which is reported; the others are lifted all the same.
    """
    known = given_up.load(settings.terms)
    lifted = []
    for identity, fenced in repository_fences.read(settings.terms).items():
        is_decided = fenced.number and known.names(identity, fenced.number, fenced.hash)
        try:
            if is_decided or (is_back(settings, fenced) and not _stale_bookmarks(settings, fenced)):
                repository_fences.lift(settings.terms, identity)
                lifted.append(fenced.path)
        except (HgfleetError, OSError) as error:
            print(f"{fenced.path} stays fenced: {error}", file=sys.stderr)
    return lifted

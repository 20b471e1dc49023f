"""Promotion of this mirror: comparison with other places, the next term, and this host's files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.core.errors import HgfleetError, PushlogError, RegistryError, UnavailableError
from hgfleet.core.identity import is_identity
from hgfleet.pushlog.record import parse
from hgfleet.replication.documents import document_files, documents
from hgfleet.replication.mirror import places, state_file, status
from hgfleet.replication.primary import positions as positions_file
from hgfleet.replication.promotion import streamed_pushes
from hgfleet.replication.promotion.streamed_pushes import STREAM
from hgfleet.replication.protocol import messages, streams
from hgfleet.replication.protocol.connection import FAILURES, asking
from hgfleet.replication.protocol.settings import Role
from hgfleet.replication.repositories import log_reader
from hgfleet.replication.repositories.served import Served
from hgfleet.replication.terms import (
    broker_terms,
    given_up,
    host_terms,
    repository_fences,
    term_lock,
)
from hgfleet.replication.terms import losses as promotion
from hgfleet.replication.terms.losses import Known, Loss

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from nats.js import JetStreamContext

    from hgfleet.pushlog.log_file import Tip
    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.client import SourceClient
    from hgfleet.replication.terms.host_terms import Term
    from hgfleet.replication.terms.losses import Accepted

ANSWER_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 20.0
"""Time for pushes that are on their way to this mirror."""

PAUSE_SECONDS: Final = 0.5
MOST_NAMED: Final = 1000
"""Most messages that are read for the names of their users."""


class PromotionRefusedError(HgfleetError):
    """Acknowledged pushes would be lost."""

    exit_code = 65


def positions(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield the ends of this host's push logs, for a promotion on another host (I/O)."""
    for identity, place in places.find(settings.repositories).items():
        tip = place.tip
        yield {
            "where": settings.host,
            "path": place.path,
            "repository": identity,
            "id": tip.id,
            "hash": tip.hash,
            "epoch": tip.epoch,
        }


def read_positions(file: Path) -> list[Known]:
    """Read the output of other hosts; "-" is standard input. Raises PushlogError and OSError."""
    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    try:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        known = [Known(**json.loads(line)) for line in lines]
        if not all(type(push.id) is int and type(push.epoch) is int for push in known):
            raise ValueError("not a number")
    except (ValueError, TypeError, RecursionError) as error:
        raise PushlogError(
            f"{file}: expected the output of `hgfleet replication positions` ({error})"
        ) from error
    return known


class _Judged(NamedTuple):
    """Ends of logs that a check compared: this host's, by identity, and the stream's."""

    tips: Mapping[str, Tip]
    streamed: Sequence[Known]


class Promotion:
    """A run on the mirror. `say` gets sentences for the operator."""

    def __init__(
        self,
        settings: Settings,
        source: SourceClient | None,
        elsewhere: Sequence[Known],
        accepted: Sequence[Accepted],
        say: Callable[[str], None],
        *,
        again: bool = False,
    ) -> None:
        """With `again`, a host that is the primary begins another term, because it was restored."""
        self._settings, self._source = settings, source
        self._again = again
        self._elsewhere, self._accepted, self._say = elsewhere, accepted, say
        self._served = Served(settings, lambda _: None)
        self._is_registry_told = self._is_state_told = False
        self._sure = {STREAM, settings.primary}
        """Places that know the newest push of a repository."""
        self.patience = PATIENCE_SECONDS
        self._asks_documents = True

    async def run(self, tls: ssl.SSLContext | None, *, dry_run: bool = False) -> Term:
        """Check, begin the next term, check again, and record it; return the term.

        After a kill, the next run finishes the work. Raises PromotionRefusedError, ClaimedError,
        MalformedError, TemporaryError and UnavailableError.
        """
        async with asking(self._settings, "hgfleet replication", tls) as client:
            api = client.jetstream(timeout=ANSWER_SECONDS)
            if dry_run:
                return await self._run(api, dry_run=True)
            async with term_lock.alone(self._settings.terms):
                return await self._run(api, dry_run=False)

    async def _run(self, api: JetStreamContext, *, dry_run: bool) -> Term:
        # First, every push that another host or the stream has must be here, or be accepted as
        # lost. Then the brokers get the term, which makes the former primary refuse pushes. A
        # second check covers the pushes that it published until then. Last come the files of this
        # host: pushes that were given up, fences of repositories, the term, the fence of the host.
        # After a kill, a run without `again` finds its term at the brokers and writes the files.
        host = self._settings.host
        own = self._own()
        last = await broker_terms.last(api)
        primary = last.term.primary if last.term is not None else host
        if self._again and primary != host:
            raise PromotionRefusedError(
                f"{primary} is the primary of this site, and {host} is not: got a new term of "
                f"{host}, expected a term of {primary}; promote {host} instead (runbook promote)"
            )
        judged = await self._check(api)
        if last.term is not None and primary == host and not self._again:
            term = last.term
        else:
            current = max(host_terms.own(self._settings)[0], last.term.epoch if last.term else 1)
            epoch = max([current, *(tip.epoch for tip in judged.tips.values())]) + 1
            term = broker_terms.made(epoch, host, host_terms.address_of(self._settings.hgrc))
            if dry_run:
                return term
            if last.term is None:
                settings = self._settings
                await streams.ensure(
                    api, settings.replicas, settings.objects_bytes, lambda *_, **__: None
                )
            if self._again:
                # The relay hears of the term before the pushes are recorded. So it gives up only
                # these pushes.
                given_up.begin(self._settings.terms, epoch, current)
            await broker_terms.add(api, term, last.sequence)
            others = "" if self._again else ": the former primary refuses pushes"
            self._say(f"epoch {epoch} of {host} has begun{others}")
            # The former primary may have published until now.
            judged = await self._check(api)
            if not self._again:
                # They are from an earlier time as the primary; other hosts have continued since.
                positions_file.discard(self._settings.positions)
        if not dry_run:
            # No operator has given up a push that reached the stream after the check: the relay
            # fences its repository.
            listed = judged.tips, judged.streamed
            pushes = await asyncio.to_thread(given_up.beyond, *listed, self._hash_at)
            given_up.note(self._settings.terms, term.epoch, pushes)
            # Before the term is recorded: so after a kill, the next run lifts them.
            if not self._again and own != (term.epoch, term.primary):
                self._lift_repositories()
            host_terms.remember(self._settings, term)
            # This matters on a restored primary too: its backup may have a fence lifted since.
            host_terms.lift(self._settings)
        return term

    def _own(self) -> tuple[int, str]:
        try:
            return host_terms.own(self._settings)
        except ValueError:
            return 0, ""

    def _lift_repositories(self) -> None:
        """Lift fences from an earlier time as the primary: the checks covered all pushes (I/O)."""
        for identity, fenced in repository_fences.read(self._settings.terms).items():
            repository_fences.lift(self._settings.terms, identity)
            self._say(f"{fenced.path} takes pushes again")

    async def _check(self, api: JetStreamContext) -> _Judged:
        """Wait for pushes on their way; raises PromotionRefusedError if any does not come."""
        until = time.monotonic() + self.patience
        while True:
            placed = await asyncio.to_thread(places.find, self._settings.repositories)
            tips = {identity: place.tip for identity, place in placed.items()}
            paths, purged = await asyncio.to_thread(self._registry)
            streamed = await streamed_pushes.last(api, paths, purged)
            listed = await asyncio.to_thread(self._of_source)
            known = [push for push in self._elsewhere if push.repository not in purged]
            known += [*streamed, *listed]
            doubtful = promotion.incomplete(tips, paths, self._parked(), purged)
            sure = {push.repository for push in known if push.where in self._sure}
            losses = promotion.losses(tips, known)
            losses += promotion.unknown(tips, doubtful, sure)
            lost = promotion.refused(losses, self._accepted)
            missing = await asyncio.to_thread(self._missing_documents)
            if not lost and not missing:
                return _Judged(tips, streamed)
            if time.monotonic() >= until:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        if missing:
            self._say(
                f"this mirror does not have {' and '.join(missing)} of {self._settings.primary} "
                "yet; the last changes there are lost, unless they come before the roles change"
            )
        if not lost:
            return _Judged(tips, streamed)
        named = [replace(loss, users=await self._users(api, loss)) for loss in lost]
        raise PromotionRefusedError(
            "acknowledged pushes would be lost:\n" + "\n".join(map(promotion.sentence, named))
        )

    def _parked(self) -> dict[str, tuple[str, str]]:
        """Return the repositories that miss pushes here, parked or waiting; none on a primary."""
        if self._settings.role is not Role.MIRROR:
            return {}
        try:
            state = status.load(self._settings.state)
        except UnavailableError as error:
            if not self._is_state_told:
                self._say(f"{error}: unknown pushes of parked repositories may be lost")
            self._is_state_told = True
            return {}
        parked = state_file.named(state, "parked")
        unserved = [key for key in state.get("unserved", ()) if isinstance(key, str)]
        late = {key: parked.get(key, (key, "no reason")) for key in unserved}
        late |= state_file.named(state, "waits")
        # The previous release named repositories by their paths.
        return {key: named for key, named in late.items() if is_identity(key)}

    def _registry(self) -> tuple[Mapping[str, str], Collection[str]]:
        """Return the paths of repositories by identity, and the identities of deletions."""
        try:
            return self._served.paths(), self._served.purged()
        except RegistryError as error:
            if not self._is_registry_told:
                self._say(f"{error}: pushes of deleted repositories count as lost")
            self._is_registry_told = True
            return {}, ()

    def _of_source(self) -> list[Known]:
        if self._source is None:
            return []
        where = self._settings.primary
        try:
            return [
                Known(where, tip.path, tip.identity, tip.id, tip.hash)
                for tip in self._source.repositories()
            ]
        except HgfleetError as error:
            self._source = None
            self._say(
                f"{where} does not answer ({error}): pushes that it recorded without the brokers "
                "are unknown, and stay on its disk"
            )
            return []

    def _hash_at(self, identity: str, number: int) -> str:
        """Return the hash of a record of a log of this host; "" if it cannot be read (I/O)."""
        try:
            place = self._served.place(identity)
            if place is None:
                return ""
            store = log_reader.store_of(self._settings.repositories, place)
            entry = log_reader.find(store, number)
        except (HgfleetError, OSError):
            return ""
        return entry.hash if entry is not None else ""

    def _missing_documents(self) -> list[str]:
        if self._source is None or not self._asks_documents:
            return []
        try:
            _, listed = self._source.documents()
        except HgfleetError as error:
            self._asks_documents = False
            self._say(f"{self._settings.primary} does not list its documents: {error}")
            return []
        return promotion.missing_documents(_digests(self._settings), listed or ())

    async def _users(self, api: JetStreamContext, loss: Loss) -> tuple[str, ...]:
        """Return the users of lost pushes, as far as the place that has them names them."""
        lines: Iterable[bytes] = ()
        if loss.where == STREAM:
            lines = await _lines(api, loss.repository)
        elif self._source is not None and loss.where == self._settings.primary:
            source = self._source
            lines = await asyncio.to_thread(
                lambda: list(source.log_after(loss.repository, loss.first - 1))
            )
        users = set()
        for line in lines:
            try:
                record = parse(line)
            except PushlogError:
                continue
            # An adoption has no user.
            if loss.first <= record.id <= loss.last and record.user:
                users.add(record.user)
        return tuple(sorted(users))


def _digests(settings: Settings) -> dict[str, str]:
    """Return the sha256 of the documents that users change, by name."""
    digests = {}
    for name in (documents.REGISTRY, documents.TOKENS):
        if (opened := document_files.Documents(settings).open(name)) is not None:
            with opened:
                digests[name] = hashlib.sha256(opened.read()).hexdigest()
    return digests


async def _lines(api: JetStreamContext, identity: str) -> list[bytes]:
    """Return the lines of the records of a repository that the stream has."""
    lines: list[bytes] = []
    sequence = 1
    while len(lines) < MOST_NAMED:
        try:
            message = await api.get_msg(
                messages.PUSHES, seq=sequence, subject=messages.pushes(identity), next=True
            )
        except FAILURES:
            break
        lines.append((message.data or b"").partition(b"\n")[0])
        sequence = (message.seq or sequence) + 1
    return lines

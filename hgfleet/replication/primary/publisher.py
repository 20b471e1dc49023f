"""Publication of a repository's push log: the records that the stream does not have yet."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn

from hgfleet.core.errors import (
    HgfleetError,
    HostError,
    PushlogError,
    RegistryError,
    TemporaryError,
)
from hgfleet.pushlog import log_file
from hgfleet.pushlog.committed import Stamp
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.primary import outbox
from hgfleet.replication.primary.outbox import Position
from hgfleet.replication.primary.visibility import MOST_HASHES
from hgfleet.replication.protocol import messages, push_objects
from hgfleet.replication.protocol.messages import PushMessage
from hgfleet.replication.protocol.streams import Streamed
from hgfleet.replication.repositories import log_reader
from hgfleet.replication.terms import given_up, repository_fences
from hgfleet.replication.terms.repository_fences import Fenced, ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.primary.broker import Broker
    from hgfleet.replication.primary.changegroups import Changegroups
    from hgfleet.replication.primary.positions import Positions
    from hgfleet.replication.primary.sessions import Sessions
    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.repositories.group_sync import GroupSync
    from hgfleet.replication.repositories.readers_gate import RegistryStamp
    from hgfleet.replication.repositories.served import Served

MOST_LEARNT: Final = 10_000
"""Most records whose hashes are read for a session that asks for an older push."""

REFUSED_SECONDS: Final = 2.0
LATE_SECONDS: Final = 30.0
"""Mirrors fetch a push from the source that has waited for so long: for a broker that refuses, and
for one that takes messages. A large push takes some seconds until it is at the brokers."""

HEADERS_BYTES: Final = 1024
"""Part of a message's payload for its headers: a path of 200 characters, an id."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan: paths of the repositories in service, and which have changed.

    Repositories are named by identity. `purged` are the deleted repositories; None while the
    registry that lists them is damaged.
    """

    paths: Mapping[str, str]
    changed: list[str]
    purged: Collection[str] | None


class Publisher:
    """Publishes records of push logs to the stream. One `publish` per repository at a time."""

    def __init__(
        self,
        settings: Settings,
        positions: Positions,
        broker: Broker,
        changegroups: Changegroups,
        served: Served,
        registry: RegistryStamp,
        sessions: Sessions,
        synced: GroupSync,
        published: Callable[[str, Entry], None],
        learnt: Callable[[Entry], None],
        say: Callable[..., None],
    ) -> None:
        self._repositories, self._terms = settings.repositories, settings.terms
        self._folder, self._objects_bytes = settings.positions, settings.objects_bytes
        self._positions, self._synced = positions, synced
        self._broker, self._changegroups = broker, changegroups
        self._served, self._registry, self._sessions = served, registry, sessions
        self._published, self._learnt, self._say = published, learnt, say
        self._sure: set[str] = set()
        """Identities whose positions agree with the stream, as seen by this connection."""
        self._doubted: set[str] = set()
        """Identities that are compared with the stream, also where their logs have not changed."""
        self.unsent: tuple[str, ...] = ()
        """The last pushes of repositories that wait for the broker, as messages name them."""
        self._told = 0
        """Repositories that wait, of which mirrors were told."""

    def compare(self) -> list[str]:
        """Compare after a new connection; return the repositories whose messages are lost."""
        self._sure.clear()
        stream = self._broker.stream
        assert stream is not None
        before = self._positions.fact("stream")
        is_new = bool(before) and before != stream.created
        lost = outbox.lost(list(self._positions), stream.last_sequence, is_new=is_new)
        for position in lost:
            self._positions.save(replace(position, sequence=outbox.LOST))
        self._positions.note("stream", stream.created)
        if lost:
            self._say("stream-lost-messages", repositories=len(lost), is_new=is_new)
        return [known.repository for known in self._positions if known.sequence == outbox.LOST]

    async def doubted(self) -> list[str]:
        """Return the repositories of which the stream has pushes that no position knows.

        A power cut may have lost the last positions together with the last pushes: then the log
        agrees with its position, but mirrors have more pushes. Raises BrokerError.
        """
        stream = self._broker.stream
        assert stream is not None
        newest = max((known.sequence for known in self._positions), default=0)
        if stream.last_sequence > max(newest, 0):
            self._doubted.update(await self._broker.since(max(newest, 0)))
        return sorted(self._doubted)

    def scan(self) -> Scan:
        """Find the repositories whose logs have changed since their positions, in a thread.

        Raises RegistryError and OSError.
        """
        paths = self._served.paths()
        changed = [
            repository
            for repository, path in paths.items()
            if not outbox.is_read(
                self._positions.get(repository), log_reader.scanned(self._repositories, path)
            )
        ]
        try:
            return Scan(paths, changed, self._served.purged())
        except RegistryError:
            # The registry of user repositories is damaged; its readers have reported it.
            return Scan(paths, changed, None)

    def hashes(self, position: Position, number: int) -> dict[int, str]:
        """Return hashes of published pushes by number, back to a given number if not too far.

        Empty if the log does not have the position. Raises the errors of log_reader (I/O).
        """
        tip = position.tip
        path = self._served.place(position.repository)
        if path is None or number > tip.id:
            return {}
        store = log_reader.store_of(self._repositories, path)
        most = min(max(MOST_HASHES, tip.id - number + 1), MOST_LEARNT)
        return log_reader.hashes(store, tip, most) if log_reader.holds(store, tip) else {}

    async def note_unsent(self, queue: outbox.Queue, *, refused: bool) -> None:
        """Note the last pushes of some repositories that wait; a later call takes the next ones.

        Mirrors fetch these pushes from the source: the disk of this host has them before. Without
        a broker no mirror is told. `refused`: the broker refuses messages.
        """
        seconds = REFUSED_SECONDS if refused else LATE_SECONDS
        waiting = queue.late(seconds) if self._broker.ready.is_set() else []
        start = self._told % len(waiting) if waiting else 0
        chosen = waiting[start : start + messages.MOST_UNSENT]
        self._told = start + len(chosen)
        found = await asyncio.to_thread(self._last_pushes, chosen)
        try:
            if found:
                await self._synced.wait()
            self.unsent = tuple(found)
        except HostError:
            # The disk does not confirm its writes, which `publish` tells.
            self.unsent = ()

    def _last_pushes(self, repositories: Sequence[str]) -> list[str]:
        found = []
        for repository in repositories:
            # A repository without a readable log is told by `publish`.
            with contextlib.suppress(HgfleetError, OSError):
                if path := self._served.place(repository):
                    last = log_reader.last(log_reader.store_of(self._repositories, path))
                    named = [f"{one.record.repository}.{one.record.id}.{one.hash}" for one in last]
                    found += [name for name in named if name.startswith(repository)]
        return found

    async def publish(self, repository: str) -> None:
        """Publish the new, committed pushes of a repository, by its identity, if it is in service.

        A position says up to which record the stream has the log. It counts only if the log has
        this record (`_holds`) and the stream does not end with another (`_confirmed`). Otherwise
        `_begin` looks for the stream's last push in the log. Raises ForkedError if the log does not
        have a published push that neither a promotion nor an operator gave up, or if a fence says
        so; BrokerError, HostError, PushlogError, RegistryError, TemporaryError and OSError.
        """
        path = await asyncio.to_thread(self._served.place, repository)
        if path is None:
            return
        if (fenced := repository_fences.find(self._terms, repository)) is not None:
            raise ForkedError(fenced, new=False)
        store = log_reader.store_of(self._repositories, path)
        stamp = log_reader.stamp(store)
        position = self._positions.get(repository)
        is_doubted = repository in self._doubted
        if outbox.is_read(position, stamp) and not is_doubted:
            return
        if position is not None and await self._holds(path, store, position):
            position = await self._confirmed(path, store, position)
        else:
            position = None
        if position is None:
            position = await self._begin(path, store, repository)
        self._doubted.discard(repository)
        await self._publish_after(path, store, position)

    async def _publish_after(self, path: str, store: Path, position: Position) -> None:
        while True:
            stamp = log_reader.stamp(store)
            if stamp is None:
                return
            after = path, position.tip, position.repository
            entries = await asyncio.to_thread(log_reader.following, store, *after)
            if not entries:
                if position.tip.end == stamp.size:
                    self._positions.save(replace(position, stamp=stamp))
                return
            # The broker syncs each message, so the disk of this host must have the records first.
            await self._synced.wait()
            for entry in entries:
                position = await self._send(path, position, entry)

    async def _holds(self, path: str, store: Path, position: Position) -> bool:
        """Whether the log has the record of a position; False if operators gave it up.

        If the stream has a push of a later term, a promotion gave the record up: this host was the
        primary before another host. Then the log is compared with that push. Raises ForkedError if
        the record is missing.
        """
        tip = position.tip
        if await asyncio.to_thread(log_reader.holds, store, tip):
            return True
        identity = position.repository
        streamed = await self._broker.streamed(identity)
        known = Streamed(tip.id, tip.epoch, tip.hash)
        if streamed is not None and streamed.is_after(tip):
            # A power cut also lost the last position.
            known = streamed
        is_of_earlier_term = streamed is not None and streamed.epoch > tip.epoch
        gave_up = given_up.load(self._terms).names(identity, known.id, known.hash)
        if not (is_of_earlier_term or gave_up):
            await self._fork(path, store, identity, known)
        self._positions.forget(identity)
        self._sure.discard(identity)
        return False

    async def _fork(self, path: str, store: Path, identity: str, known: Streamed) -> NoReturn:
        """Raise ForkedError, or TemporaryError if the repository was moved in the meantime."""
        if await asyncio.to_thread(self._served.place, identity) != path:
            raise TemporaryError(f"{path} is being moved; the relay tries again")
        try:
            here = (await asyncio.to_thread(log_file.tip, store / log_file.NAME)).id
        except PushlogError:
            here = 0
        raise ForkedError(
            Fenced(identity, path, known.id, known.hash, known.epoch, here, int(time.time()))
        )

    async def _confirmed(self, path: str, store: Path, position: Position) -> Position | None:
        """Compare a position with the stream; None if it has to be found again."""
        identity = position.repository
        is_sure = identity in self._sure and identity not in self._doubted
        if is_sure and position.sequence != outbox.LOST:
            return position
        streamed = await self._broker.streamed(identity)
        if streamed is not None and not streamed.is_at(position.tip):
            return None
        if streamed is None and position.sequence == outbox.LOST:
            position = await self._send_last(path, store, position)
        elif streamed is not None and streamed.sequence != position.sequence:
            position = replace(position, sequence=streamed.sequence)
            self._positions.save(position)
        self._sure.add(identity)
        return position

    async def _send_last(self, path: str, store: Path, position: Position) -> Position:
        """Publish the last record again, without changesets: mirrors without it notice a gap."""
        last = await asyncio.to_thread(log_reader.last, store)
        for entry in last:
            if entry.record.id == position.tip.id and entry.hash == position.tip.hash:
                sequence = await self._message(path, entry, with_changesets=False)
                position = replace(position, sequence=sequence)
                self._positions.save(position)
        return replace(position, sequence=max(position.sequence, 0))

    async def _begin(self, path: str, store: Path, identity: str) -> Position:
        """Find the position in a log without a position; publish the last record of a long log."""
        streamed = await self._broker.streamed(identity)
        stamp = log_reader.stamp(store) or Stamp(0, 0, 0)
        position = Position(identity, Tip(), stamp, streamed.sequence if streamed else 0)
        if streamed is None:
            newest = await asyncio.to_thread(log_file.tip, store / log_file.NAME)
            if newest.repository == identity and newest.id > outbox.FEW:
                await self._synced.wait()
                for entry in await asyncio.to_thread(log_reader.last, store):
                    position = await self._send(path, position, entry)
            return position
        while position.tip.id < streamed.id:
            entries = await asyncio.to_thread(log_reader.read, store, position.tip.end)
            if not (known := outbox.published(entries, streamed)):
                break
            for entry in known:
                self._learnt(entry)
            position = replace(position, tip=outbox.after(position.tip, known))
        if not streamed.is_at(position.tip) and not self._gave_up(identity, streamed):
            await self._fork(path, store, identity, streamed)
        self._sure.add(identity)
        return position

    def _gave_up(self, identity: str, streamed: Streamed) -> bool:
        """Whether operators gave up the last push of the stream."""
        return given_up.load(self._terms).has(
            identity,
            streamed.id,
            streamed.hash,
            streamed.epoch,
            current=self._broker.guard.epoch,
        )

    async def _send(self, path: str, position: Position, entry: Entry) -> Position:
        """Publish a record and move the position behind it."""
        sequence = await self._message(path, entry)
        moved = replace(position, tip=outbox.after(position.tip, [entry]), sequence=sequence)
        self._positions.save(moved)
        self._sure.add(position.repository)
        self._published(path, entry)
        return moved

    async def _message(self, path: str, entry: Entry, *, with_changesets: bool = True) -> int:
        """Publish the message of a record; return its number in the stream."""
        changegroup = b""
        if with_changesets and outbox.fits(entry):
            changegroup = await self._changegroups.make(
                self._repositories / path, entry.record.changesets
            )
        # Read after the record: the readers are as at the push, or newer.
        stamp = await asyncio.to_thread(self._registry.read)
        record = entry.record
        session = self._sessions.of(record.repository, record.id)
        message = PushMessage(path, entry.line, record, changegroup, stamp, session)
        body = outbox.body(message, self._broker.max_payload - HEADERS_BYTES)
        if with_changesets and not outbox.is_whole(message, body):
            await self._keep(path, message)
        sequence, _ = await self._broker.publish(
            messages.PUSHES,
            messages.pushes(entry.record.repository),
            body,
            message.headers(),
        )
        return sequence

    async def _keep(self, path: str, message: PushMessage) -> None:
        """Store a push that is too large for its message at the brokers, before the message.

        If they cannot keep it, the message is published all the same: mirrors ask the source.
        Raises BrokerError.
        """
        if not self._broker.has_objects or await self._broker.has_object(message.id):
            return
        place, nodes = self._repositories / path, message.record.changesets
        most = self._objects_bytes // push_objects.SHARE
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(message.line + b"\n")
                problem = None
                if nodes:
                    problem = await self._changegroups.write(place, nodes, file, most - file.tell())
                if problem is None:
                    file.seek(0)
                    await self._broker.store(message.id, file)
        except OSError as error:
            problem = f"{self._folder}: {error.strerror or error}"
        if problem is not None:
            name = messages.push_name(message.record.repository, message.record.id)
            self._say("push-not-kept", repository=path, push=name, reason=problem)

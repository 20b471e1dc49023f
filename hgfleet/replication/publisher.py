"""Publication of the push log of one repository: the records that the stream does not have yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import PushlogError, RegistryError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication import log_reader, messages, outbox
from hgfleet.replication.messages import PushMessage
from hgfleet.replication.outbox import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.broker import Broker
    from hgfleet.replication.changegroups import Changegroups
    from hgfleet.replication.positions import Positions
    from hgfleet.replication.registry_gate import RegistryStamp
    from hgfleet.replication.served import Served
    from hgfleet.replication.sessions import Sessions

HEADERS_BYTES: Final = 1024
"""Of a message's payload, for its headers: a path of 200 characters, an id."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found: paths of the repositories in service, and those with news, by identity.

    `purged` are those that were deleted, None while the registry that tells is damaged.
    """

    paths: Mapping[str, str]
    changed: list[str]
    purged: Collection[str] | None


class Publisher:
    """Records from push logs to the stream. One call of `publish` per repository at a time."""

    def __init__(
        self,
        repositories: Path,
        positions: Positions,
        broker: Broker,
        changegroups: Changegroups,
        served: Served,
        registry: RegistryStamp,
        sessions: Sessions,
        published: Callable[[str, Entry], None],
        say: Callable[..., None],
    ) -> None:
        self._repositories, self._positions = repositories, positions
        self._broker, self._changegroups = broker, changegroups
        self._served, self._registry, self._sessions = served, registry, sessions
        self._published, self._say = published, say
        self._sure: set[str] = set()
        """Identities whose positions agree with the stream, as seen by this connection."""

    def compare(self) -> list[str]:
        """Begin with a new connection; return the repositories whose messages the stream lost."""
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
        return [one.repository for one in self._positions if one.sequence == outbox.LOST]

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
            # It is the registry of people; what reads it has told so.
            return Scan(paths, changed, None)

    async def publish(self, repository: str) -> None:
        """Publish what is committed and new of a repository, by its identity, if it is in service.

        Raises BrokerError, PushlogError, RegistryError, TemporaryError and OSError.
        """
        path = await asyncio.to_thread(self._served.place, repository)
        if path is None:
            return
        store = log_reader.store_of(self._repositories, path)
        stamp = log_reader.stamp(store)
        position = self._positions.get(repository)
        if stamp is None or outbox.is_read(position, stamp):
            return
        if position is not None:
            position = await self._confirmed(path, store, position)
        if position is None:
            position = await self._begin(path, store, Position(repository, Tip(), stamp))
        while True:
            stamp = log_reader.stamp(store)
            if stamp is None:
                return
            entries = await asyncio.to_thread(log_reader.read, store, position.tip.end)
            if wrong := position.problem(entries, stamp):
                raise PushlogError(
                    f"the push log of {path} has changed: {wrong}; restore it, or run "
                    f"`hgfleet replication resync {path}` on each mirror"
                )
            if not entries:
                if position.tip.end == stamp.size:
                    self._positions.save(replace(position, stamp=stamp))
                return
            for entry in entries:
                position = await self._send(path, position, entry)

    async def _confirmed(self, path: str, store: Path, position: Position) -> Position | None:
        """Compare a position with the stream; None if it has to be found anew."""
        identity = position.repository
        if identity in self._sure and position.sequence != outbox.LOST:
            return position
        streamed = await self._broker.streamed(identity)
        if streamed is not None and not streamed.is_at(position.tip):
            return None
        if streamed is None and position.sequence == outbox.LOST:
            position = await self._send_last(path, store, position)
        self._sure.add(identity)
        return position

    async def _send_last(self, path: str, store: Path, position: Position) -> Position:
        """Publish the last record again, without changesets: mirrors without it have a gap."""
        last = await asyncio.to_thread(log_reader.last, store)
        for entry in last:
            if entry.record.id == position.tip.id and entry.hash == position.tip.hash:
                sequence = await self._message(path, entry, with_changesets=False)
                position = replace(position, sequence=sequence)
                self._positions.save(position)
        return replace(position, sequence=max(position.sequence, 0))

    async def _begin(self, path: str, store: Path, position: Position) -> Position:
        """Find the position in a log that has none; publishes the last record of a long one."""
        identity = position.repository
        streamed = await self._broker.streamed(identity)
        newest = await asyncio.to_thread(log_file.tip, store / log_file.NAME)
        if newest.repository != identity:
            return position
        if not outbox.whole(streamed and streamed.id, newest.id):
            for entry in await asyncio.to_thread(log_reader.last, store):
                position = await self._send(path, position, entry)
            return position
        while streamed is not None and streamed.id > position.tip.id:
            entries = await asyncio.to_thread(log_reader.read, store, position.tip.end)
            known = outbox.published(entries, streamed)
            if not known and (entries or streamed.epoch < self._broker.guard.epoch):
                # A promotion gave up the pushes that the stream has beyond.
                break
            if not known:
                raise PushlogError(
                    f"the push log of {path} ends with record {position.tip.id}, and mirrors have "
                    f"record {streamed.id}: it is not the log that they know; restore it, or run "
                    f"`hgfleet replication resync {path}` on each mirror"
                )
            position = replace(position, tip=outbox.after(position.tip, known))
        if streamed is not None and streamed.differs(position.tip):
            raise PushlogError(
                f"record {streamed.id} of {path} is another one than mirrors have: it is not the "
                f"log that they know; restore it, or run `hgfleet replication resync {path}` on "
                "each mirror"
            )
        self._sure.add(identity)
        return position

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
        # Read after the record: the readers are those of the push, or newer.
        stamp = await asyncio.to_thread(self._registry.read)
        record = entry.record
        session = self._sessions.of(record.repository, record.id)
        message = PushMessage(path, entry.line, record, changegroup, stamp, session)
        body = outbox.body(message, self._broker.max_payload - HEADERS_BYTES)
        sequence, _ = await self._broker.publish(
            messages.PUSHES,
            messages.pushes(entry.record.repository),
            body,
            message.headers(),
        )
        return sequence

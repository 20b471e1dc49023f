"""Announcements of pushes: an event to the stream when every live mirror shows the push.

The push logs are the outbox here too. The announcer has a position in each log, which moves when
the broker has acknowledged the event. After a kill the stream has the last event, so each event is
sent once. Waiting events are in memory, and are found again at the start by a comparison of the
positions.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HgfleetError, PushlogError
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.primary import outbox
from hgfleet.replication.primary.broker import BrokerError
from hgfleet.replication.protocol import events, messages
from hgfleet.replication.protocol.messages import Asked
from hgfleet.replication.repositories import log_reader
from hgfleet.replication.terms.given_up_numbers import GivenUpNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.primary.broker import Broker
    from hgfleet.replication.primary.leases import Members
    from hgfleet.replication.primary.positions import Positions
    from hgfleet.replication.primary.visibility import Shown
    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.protocol.streams import Streamed
    from hgfleet.replication.repositories.served import Served

SINCE: Final = "events-since"
"""Name of the fact since when pushes have events, in seconds since 1970."""


@dataclass
class _Pending:
    """A repository with unsent events, up to push `number`, whose record has the hash."""

    number: int
    hash: str
    began: float = field(default_factory=time.monotonic)


class Announcer:
    """Events of the pushes that the relay has published."""

    def __init__(
        self,
        settings: Settings,
        positions: Positions,
        broker: Broker,
        shown: Shown,
        members: Members,
        served: Served,
        say: Callable[..., None],
    ) -> None:
        self._settings, self._positions, self._broker = settings, positions, broker
        self._shown, self._members, self._served, self._say = shown, members, served, say
        self._pending: dict[str, _Pending] = {}
        self._touched: set[str] = set()
        self._sure: set[str] = set()
        """Identities whose positions agree with the stream, as seen by this connection."""
        self._given_up = GivenUpNumbers(settings.terms)
        self._problems: dict[str, str] = {}
        self._news = asyncio.Event()
        self._started = time.time()
        self._connected = 0.0
        self._tick = settings.lease_seconds / 3

    # -- news ------------------------------------------------------------------------------------

    def published(self, repository: str, number: int, hash_: str) -> None:
        """Take over a push that the stream of pushes has; it is the last push of its chain."""
        pending = self._pending.setdefault(repository, _Pending(number, hash_))
        # If the number is lower than before, the last pushes of the log were given up.
        pending.number, pending.hash = number, hash_
        self._touch(repository)

    def keep(self, served: Collection[str]) -> None:
        """Drop the events of repositories that are no longer in service.

        If a repository comes back, its events continue with its next push.
        """
        for repository in (self._pending.keys() | self._problems.keys()) - {"", *served}:
            self._pending.pop(repository, None)
            self._problems.pop(repository, None)

    def applied(self, repository: str) -> None:
        """Check a repository of which a mirror shows another push."""
        if repository in self._pending:
            self._touch(repository)

    def mirrors_changed(self) -> None:
        """Check all repositories, because a mirror joined or left."""
        self._touch(*self._pending)

    def connected(self) -> None:
        """Find the waiting events, after a new connection to the broker."""
        stream = self._broker.stream
        has_events = stream is not None and stream.has_events
        if not self._positions.fact(SINCE):
            begin = events.since(self._started, has_events=has_events)
            self._positions.note(SINCE, f"{begin:.3f}")
        self._connected = time.monotonic()
        self._sure.clear()
        for position in self._positions:
            repository, tip = position.repository, position.tip
            announced = self._positions.announced(repository)
            # Compare hashes too: another push may have the number of the announced push.
            if tip.id and (announced is None or announced[:2] != tip[:2]):
                self._shown.published(repository, tip.id, tip.hash)
                self.published(repository, tip.id, tip.hash)

    def _touch(self, *repositories: str) -> None:
        self._touched.update(repositories)
        self._news.set()

    # -- announcements ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Announce until cancelled."""
        looked = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tick):
                    await self._news.wait()
            await self._broker.ready.wait()
            self._news.clear()
            if time.monotonic() - looked >= self._tick:
                looked = time.monotonic()
                await self._ask()
                self._touched.update(self._pending)
            touched, self._touched = self._touched, set()
            try:
                for repository in touched:
                    await self._look(repository)
            except BrokerError as error:
                # The next tick checks all of them again.
                self._problem("", str(error))
            else:
                self._problems.pop("", None)

    async def _look(self, repository: str) -> None:
        pending = self._pending.get(repository)
        if pending is None:
            return
        try:
            is_done = await self._announce(repository, pending)
        except BrokerError:
            raise
        except (HgfleetError, OSError) as error:
            self._problem(repository, str(error))
            # The log is another: the next push is checked again.
            is_done = isinstance(error, PushlogError)
        else:
            self._problems.pop(repository, None)
        if is_done and self._pending.get(repository) is pending:
            del self._pending[repository]

    async def _announce(self, repository: str, pending: _Pending) -> bool:
        """Send the events that are due; return whether no event is left."""
        if not self._is_due(repository, pending):
            return False
        path = await asyncio.to_thread(self._served.place, repository)
        if path is None:
            return True
        store = log_reader.store_of(self._settings.repositories, path)
        tip = await self._position(repository, store)
        while tip.id < pending.number:
            entries = await asyncio.to_thread(log_reader.following, store, path, tip, repository)
            if not entries:
                return False
            for entry in entries:
                number = entry.record.id
                if number > pending.number:
                    return True
                if number == pending.number and entry.hash != pending.hash:
                    raise PushlogError(f"{path}: push {number} differs from the published push")
                self._shown.learn(repository, number, entry.hash)
                if not self._is_shown(repository, number):
                    return False
                await self._send(path, entry)
                tip = outbox.after(tip, [entry])
                self._positions.announce(repository, tip)
                pending.began = time.monotonic()
        # A push may have come in the meantime.
        return tip.id >= pending.number

    def _is_due(self, repository: str, pending: _Pending) -> bool:
        tip = self._positions.announced(repository)
        # Without a position, the log has to be read first.
        return tip is None or self._is_shown(repository, min(tip.id + 1, pending.number))

    def _is_shown(self, repository: str, number: int) -> bool:
        """Whether mirrors show a push, by the hashes of their last pushes."""
        return events.is_due(
            self._shown.showing(repository, number),
            *self._counting(),
            is_settled=self._is_settled(),
        )

    def _counting(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._members.live(time.monotonic()), self._members.mirrors

    def _is_settled(self) -> bool:
        return time.monotonic() - self._connected > self._settings.lease_seconds

    async def _position(self, repository: str, store: Path) -> Tip:
        """Return the last push whose event was sent, according to the stream."""
        tip = self._positions.announced(repository)
        if tip is not None and repository in self._sure:
            return tip
        stream = self._broker.stream
        streamed = None
        if tip is not None or (stream is not None and stream.has_events):
            streamed = await self._broker.streamed(repository, messages.EVENTS)
        if tip is None or (streamed is not None and streamed.is_after(tip)):
            begin = float(self._positions.fact(SINCE))
            out: dict[int, str] = {}
            highest = await asyncio.to_thread(self._given_up.highest, repository)
            if streamed is not None and highest:
                # Its last event may belong to a push that is no longer in this log.
                out = await self._broker.announced(repository)
            tip = await asyncio.to_thread(_first, store, tip or Tip(), streamed, begin, out)
            if tip.repository not in ("", repository):
                raise PushlogError(f"the push log belongs to repository {tip.repository}")
            self._positions.announce(repository, tip)
        self._sure.add(repository)
        return tip

    async def _send(self, path: str, entry: Entry) -> None:
        record = entry.record
        if not events.has_event(record):
            return
        is_public = await asyncio.to_thread(self._is_public, path)
        highest = await asyncio.to_thread(self._given_up.highest, record.repository)
        _sequence, is_known = await self._broker.publish(
            messages.EVENTS,
            messages.events(record.repository),
            events.body(record, path, is_public=is_public, is_again=record.id <= highest),
            {
                messages.MESSAGE_ID_HEADER: messages.message_id(record, entry.hash),
                messages.HASH_HEADER: entry.hash,
            },
        )
        if not is_known:
            name = messages.push_name(record.repository, record.id)
            self._say("announced", repository=path, push=name)

    def _is_public(self, path: str) -> bool:
        entry = self._served.registry().repositories.get(path)
        return entry is not None and entry.is_public

    # -- mirrors ---------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Ask mirrors which pushes they show of repositories that have waited for some time.

        A new relay has no reports yet, and a report of a mirror may be lost.
        """
        now = time.monotonic()
        live, mirrors = self._counting()
        for host in live if self._is_settled() else mirrors:
            asked = [
                repository
                for repository, pending in self._pending.items()
                if now - pending.began >= self._tick
                and host not in self._shown.showing(repository, pending.number, pending.hash)
            ][: messages.MOST_ASKED]
            for repository in asked:
                pending = self._pending[repository]
                self._shown.published(repository, pending.number, pending.hash)
            if asked:
                await self._broker.tell(messages.asked(host), Asked(tuple(asked)).body())

    def _problem(self, repository: str, reason: str) -> None:
        if self._problems.get(repository) != reason:
            self._say("unannounced", repository=repository or None, reason=reason)
        if len(self._problems) < outbox.MOST_PROBLEMS:
            self._problems[repository] = reason

    def state(self) -> dict[str, Any]:
        """Describe the events that are not sent yet."""
        now = time.monotonic()
        waiting = list(self._pending.items())
        live, _ = self._counting()
        slow = {
            host
            for repository, pending in waiting[: outbox.MOST_PROBLEMS]
            for host in live
            if host not in self._shown.showing(repository, pending.number, pending.hash)
        }
        return {
            "waiting": len(waiting),
            "seconds": round(max((now - event.began for _, event in waiting), default=0.0), 1),
            "mirrors": sorted(slow),
            "problems": list(self._problems.values()),
        }


def _first(
    store: Path, tip: Tip, streamed: Streamed | None, begin: float, out: Mapping[int, str]
) -> Tip:
    """Return the end of the records whose events were sent. Raises as `log_reader.read` does."""
    last = log_reader.last(store)
    if not out and last and events.is_announced(last[0], streamed, begin):
        return outbox.after(tip, last)
    while entries := log_reader.read(store, tip.end):
        for entry in entries:
            if not events.is_announced(entry, streamed, begin, out):
                return tip
            tip = outbox.after(tip, [entry])
    return tip

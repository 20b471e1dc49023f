"""The feed of push events: a server of text/event-stream behind nginx, on a socket of a web host.

Each client has only a place in the shared list of the newest events, so slow clients cost no
memory. A client reads only events of repositories that anonymous clients may read at that moment.
Connections end after some minutes, and when the stream is created again; the client comes back with
the last event that it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from hgfleet.core.daemons import service, systemd
from hgfleet.core.errors import HgfleetError
from hgfleet.replication.events import feed
from hgfleet.replication.events.feed import Listeners, Newest, RefusedError
from hgfleet.replication.protocol import events, messages, pulling
from hgfleet.replication.protocol.connection import Connection
from hgfleet.replication.repositories.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from hgfleet.registry.model.registry import Repository
    from hgfleet.replication.events.feed import Request
    from hgfleet.replication.protocol.events import Event
    from hgfleet.replication.protocol.settings import Settings

HEARTBEAT_SECONDS: Final = 15.0
LIFE_SECONDS: Final = 600.0
"""Life of a connection, so that nginx can end its old processes and clients spread over hosts."""

REQUEST_SECONDS: Final = 10.0
SEND_SECONDS: Final = 30.0
"""Time for a client to take the bytes sent; a slower client is disconnected, and may come back."""

MOST_REQUEST_BYTES: Final = 64 * 1024


class FeedServer:
    """Serves events at a Unix socket until it is cancelled."""

    def __init__(self, settings: Settings, socket: Path, say: Callable[..., None]) -> None:
        self._settings, self._socket, self._say = settings, socket, say
        self._name = messages.token(settings.host)
        self._served = Served(settings, self._complain)
        self._newest, self._listeners = Newest(), Listeners()
        self._news, self._loaded = asyncio.Event(), asyncio.Event()
        self._registry_problem = ""
        self._connection = Connection(settings, "hgfleet-events", say, self._receive_all)

    async def run(self) -> None:
        """Receive and serve until cancelled."""
        server = await asyncio.start_unix_server(
            self._serve, self._socket, limit=MOST_REQUEST_BYTES
        )
        # nginx runs as another user; each client that it lets through may read this feed.
        self._socket.chmod(0o666)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._connection.run())
                tasks.create_task(service.watchdog())
                self._say("started", socket=self._socket)
                systemd.notify("READY=1")
        finally:
            server.close()

    # -- events ----------------------------------------------------------------------------------

    async def _receive_all(self, client: Client) -> None:
        last = await self._begin(client)
        self._connection.established()
        if self._newest.end >= last:
            self._loaded.set()
        async for message in pulling.messages_of(client, messages.EVENTS, self._name):
            self._receive(message, last)

    async def _begin(self, client: Client) -> int:
        """Ask the broker for all messages after the last; return the number of the newest."""
        api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
        info = await api.stream_info(messages.EVENTS)
        stream = hashlib.sha256(str(info.created).encode()).hexdigest()[:12]
        last = info.state.last_seq
        if stream != self._newest.stream or last < self._newest.end:
            self._newest.restart(stream, max(info.state.first_seq, last - feed.MOST_EVENTS + 1, 1))
            self._tell()
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await api.delete_consumer(messages.EVENTS, self._name)
        await api.add_consumer(
            messages.EVENTS,
            ConsumerConfig(
                name=self._name,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._newest.end + 1,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=60.0,
            ),
        )
        return last

    def _receive(self, message: Msg, last: int) -> None:
        event: Event | None = None
        try:
            event = events.decode(message.data)
        except ValueError as error:
            self._say("event-unreadable", subject=message.subject, reason=error)
        number = message.metadata.sequence.stream
        self._newest.add(number, event if event is not None and event.is_public else None)
        if number >= last:
            self._loaded.set()
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # -- clients ---------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        failures = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            try:
                request = feed.parse(head[:-4])
                self._check(request)
                self._listeners.join(request.address)
            except RefusedError as error:
                await _sent(writer, feed.refusal(error))
                return
            try:
                await self._send(request, reader, writer)
            finally:
                self._listeners.leave(request.address)
        except failures:
            # The client is gone, or too slow: it may come back.
            writer.transport.abort()
        finally:
            writer.close()

    def _check(self, request: Request) -> None:
        if not self._loaded.is_set():
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "the events are not there yet; try again later"
            )
        for path in sorted(request.repositories):
            if not self._is_public(path):
                raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no repository '{path}' here")

    def _is_public(self, path: str) -> bool:
        entry = self._entries(lambda: self._served.registry().repositories.get(path))
        return entry is not None and entry.is_public

    def _public_path(self, event: Event) -> str:
        """Return the present path of an event's repository, if it is public now; else "".

        Another repository may have taken the path of the event since then.
        """
        entry = self._entries(lambda: self._served.entry(event.repository, event.path))
        return entry.path if entry is not None and entry.is_public else ""

    def _entries(self, read: Callable[[], Repository | None]) -> Repository | None:
        try:
            return read()
        except (HgfleetError, OSError) as error:
            self._complain(str(error))
            return None

    def _complain(self, reason: str) -> None:
        if reason != self._registry_problem:
            self._say("registry", reason=reason)
        self._registry_problem = reason

    async def _send(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send events until the client disconnects, or its time is over."""
        newest, stream, until = self._newest, self._newest.stream, time.monotonic() + LIFE_SECONDS
        last = request.last
        # A number before all events that are here leads to the event of a gap.
        number = newest.end if last is None else last.number if newest.has(last) else -1
        await _sent(writer, feed.ACCEPTED + feed.beginning(stream, max(number, 0)))
        ended = asyncio.ensure_future(reader.read(1))
        try:
            while time.monotonic() < until and newest.stream == stream and not ended.done():
                news = self._news
                number, is_quiet = await self._bring(request, number, writer)
                if is_quiet and not await _is_woken(news, ended):
                    await _sent(writer, feed.heartbeat(stream, number))
        finally:
            ended.cancel()

    async def _bring(
        self, request: Request, number: int, writer: asyncio.StreamWriter
    ) -> tuple[int, bool]:
        """Send the events after a number; return the last number, and whether no more came."""
        newest, stream = self._newest, self._newest.stream
        if number < newest.begin:
            await _sent(writer, feed.gap(stream, newest.end))
            return newest.end, False
        end = newest.end
        for stored in list(newest.after(number)):
            if (path := self._public_path(stored.event)) and request.takes(path):
                await _sent(writer, feed.rendered(stream, stored))
        return end, newest.end == end


async def _sent(writer: asyncio.StreamWriter, content: bytes) -> None:
    """Send bytes to a client, which has to take them in some time."""
    writer.write(content)
    async with asyncio.timeout(SEND_SECONDS):
        await writer.drain()


async def _is_woken(news: asyncio.Event, ended: asyncio.Future[bytes]) -> bool:
    """Wait, up to a heartbeat, for news or the end of a client; return whether either came."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(news.wait())
    both: set[asyncio.Future[Any]] = {waiting, ended}
    try:
        done, _rest = await asyncio.wait(
            both, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        waiting.cancel()
    return bool(done)

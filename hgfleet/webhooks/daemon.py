"""The daemon of webhooks: events from the broker to the spool, and from the spool to receivers.

Each receiver has tasks of its own, so a slow one delays no other. A repository has one request to
a receiver at a time, and its next event only when the one before is delivered or dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import ssl
import time
from typing import TYPE_CHECKING, Final

from nats.js.api import DeliverPolicy

from hgfleet.core import service, systemd
from hgfleet.replication import events, messages, pulling
from hgfleet.replication.connection import Connection
from hgfleet.webhooks import attempts
from hgfleet.webhooks.attempts import Verdict
from hgfleet.webhooks.request import RequestError, post

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from hgfleet.replication.settings import Settings as Replication
    from hgfleet.webhooks.settings import Receiver, Settings
    from hgfleet.webhooks.spool import Delivery, Line, Spool

CONSUMER: Final = "webhooks"
"""The durable consumer of the stream of events; the broker's configuration names it."""

ACK_SECONDS: Final = 5.0
"""After which the broker sends an event again; a lost acknowledgement holds all events for that."""

PARALLEL: Final = 4
"""Requests to one receiver at a time."""

LOOK_SECONDS: Final = 5.0
"""Between looks at the spool, which commands change too."""


class Daemon:
    """Delivers events until it is cancelled. `secrets` are those of all receivers, by name."""

    def __init__(
        self,
        settings: Settings,
        replication: Replication,
        secrets: Mapping[str, bytes],
        spool: Spool,
        say: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._connection = Connection(
            replication, "hgfleet-webhooks", say, self._receive_all, sqlite3.OperationalError
        )
        self._secrets, self._spool, self._say = secrets, spool, say
        self._news = {receiver.name: asyncio.Event() for receiver in settings.receivers}
        self._tls = ssl.create_default_context(cafile=str(settings.ca))
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    async def run(self) -> None:
        """Receive and deliver until cancelled."""
        if removed := self._spool.keep(list(self._news)):
            self._say("removed", deliveries=removed, reason="their receivers are not set any more")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connection.run())
            for receiver in self._settings.receivers:
                tasks.create_task(self._serve(receiver))
            tasks.create_task(service.watchdog())
            self._say("started", receivers=len(self._settings.receivers))
            systemd.notify("READY=1")

    # -- arrival ---------------------------------------------------------------------------------

    async def _receive_all(self, client: Client) -> None:
        # A broker that lost the consumer sends all events again; the spool knows its own.
        policy = DeliverPolicy.NEW if self._spool.is_new() else DeliverPolicy.ALL
        await pulling.ensure_consumer(client, messages.EVENTS, CONSUMER, policy, 1, ACK_SECONDS)
        self._connection.established()
        async for message in pulling.messages_of(client, messages.EVENTS, CONSUMER):
            await self._receive(message)

    async def _receive(self, message: Msg) -> None:
        """Store an event for its receivers, and acknowledge it."""
        try:
            event = events.decode(message.data)
        except ValueError as error:
            self._say("event-unreadable", subject=message.subject, reason=error)
        else:
            takers = [one.name for one in self._settings.receivers if one.takes(event)]
            if self._spool.receive(event, takers, time.time()):
                for name in takers:
                    self._news[name].set()
        await message.ack()

    # -- delivery --------------------------------------------------------------------------------

    async def _serve(self, receiver: Receiver) -> None:
        """Deliver to one receiver."""
        news = self._news[receiver.name]
        active: set[str] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                news.clear()
                now, wait = time.time(), LOOK_SECONDS
                for line in self._spool.lines(receiver.name):
                    if len(active) >= PARALLEL:
                        break
                    if line.repository in active:
                        continue
                    if not attempts.is_due(line.due, now):
                        wait = min(wait, max(line.due - now, 0.01))
                        continue
                    active.add(line.repository)
                    tasks.create_task(self._attempt(receiver, line, active))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await news.wait()

    async def _attempt(self, receiver: Receiver, line: Line, active: set[str]) -> None:
        try:
            delivery = self._spool.begin(receiver.name, line)
            if delivery is not None:
                await self._deliver(receiver, delivery)
        finally:
            active.discard(line.repository)
            self._news[receiver.name].set()

    async def _deliver(self, receiver: Receiver, delivery: Delivery) -> None:
        """Send a request, and note its result."""
        event = delivery.event
        made = attempts.headers(event, self._secrets[receiver.name], time.time())
        began = time.monotonic()
        try:
            seconds = self._settings.timeout_seconds
            status = await post(receiver.url, made, event.body, seconds, self._tls)
            verdict, reason = attempts.verdict(status), f"status {status}"
        except RequestError as error:
            verdict, reason = Verdict.RETRY, str(error)
        told = {"receiver": receiver.name, "delivery": event.id, "repository": event.path}
        if verdict is Verdict.DELIVERED:
            self._spool.delivered(delivery)
            self._say("delivered", **told, seconds=time.monotonic() - began)
            return
        due = None
        if verdict is Verdict.RETRY:
            due = attempts.next_attempt(
                *(delivery.received, time.time(), delivery.attempts, random.random()),  # noqa: S311
                self._settings.retry_seconds,
            )
        self._spool.failed(delivery, due, reason)
        self._say("dead" if due is None else "failed", **told, reason=reason)

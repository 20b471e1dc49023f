"""The daemon of webhooks: each receiver has a consumer at the brokers, and tasks of its own.

So a slow or dead receiver delays no other. A repository has one request to a receiver at a time,
and its next event only when the one before is delivered or dead. The host has nothing that another
primary needs.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import files, service, systemd
from hgfleet.replication import pulling
from hgfleet.replication.broker_errors import sentence
from hgfleet.replication.connection import (
    FAILURES,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Connection,
    LostError,
)
from hgfleet.webhooks import consumers, former_spool, identities, letters
from hgfleet.webhooks.deliveries import Deliveries
from hgfleet.webhooks.letters import Letter, Letters
from hgfleet.webhooks.settings import STATE_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from hgfleet.replication.settings import Settings as Replication
    from hgfleet.webhooks.former_spool import Former
    from hgfleet.webhooks.settings import Settings

STATE_SECONDS: Final = 5.0
"""Between looks whether the state has changed that `hgfleet webhooks status` reads."""


class Daemon:
    """Delivers events until it is cancelled. `secrets` are those of all receivers, by name."""

    def __init__(
        self,
        settings: Settings,
        replication: Replication,
        secrets: Mapping[str, bytes],
        say: Callable[..., None],
        former: Sequence[Former] = (),
    ) -> None:
        tls = ssl.create_default_context(cafile=str(settings.ca))
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._settings, self._replication, self._say = settings, replication, say
        self._deliveries = {
            one.name: Deliveries(one, secrets[one.name], settings, tls, say)
            for one in settings.receivers
        }
        self._connection = Connection(replication, "hgfleet-webhooks", say, self._live)
        self._is_assigned, self._former = False, former

    async def run(self) -> None:
        """Receive and deliver until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for deliveries in self._deliveries.values():
                tasks.create_task(deliveries.run())
            tasks.create_task(self._connection.run())
            tasks.create_task(self._tell_state())
            tasks.create_task(service.watchdog())
            self._say("started", receivers=len(self._deliveries))
            systemd.notify("READY=1")

    async def _live(self, client: Client) -> None:
        api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
        stored = Letters(api)
        await stored.ensure(self._replication.replicas)
        if not self._is_assigned:
            await self._assign(client, api, stored)
            self._is_assigned = True
        await client.subscribe(letters.subject(letters.AGAIN), cb=self._on_letter)
        self._connection.established()
        async with asyncio.TaskGroup() as tasks:
            for deliveries in self._deliveries.values():
                tasks.create_task(self._receive(client, deliveries))

    async def _receive(self, client: Client, deliveries: Deliveries) -> None:
        """Receive for one receiver; its trouble is that of no other."""
        problem, pause = "", FIRST_PAUSE
        while not client.is_closed:
            try:
                await deliveries.receive(client)
            except (*FAILURES, LostError) as error:
                reason = sentence(error, self._replication.brokers)
                if reason != problem and not client.is_closed:
                    self._say("receiver-away", receiver=deliveries.receiver.name, reason=reason)
                problem = reason
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _on_letter(self, message: Msg) -> None:
        identity = message.subject.rpartition(".")[2]
        for deliveries in self._deliveries.values():
            if deliveries.known is not None and deliveries.known.identity == identity:
                deliveries.look()

    # -- receivers -------------------------------------------------------------------------------

    async def _assign(self, client: Client, api: JetStreamContext, stored: Letters) -> None:
        """Give each receiver its consumer, and remove those of receivers that are not set."""
        there = list(await consumers.receivers(client))
        found = identities.assign(
            {name: (one.receiver.url, one.secret) for name, one in self._deliveries.items()}, there
        )
        taken = await consumers.taken(api)
        for name, deliveries in self._deliveries.items():
            deliveries.known, deliveries.taken = found[name], taken
            await consumers.ensure(api, found[name], taken.next if taken else 0)
        kept = {one.identity for one in found.values()}
        for one in there:
            if one.identity not in kept:
                await stored.forget(one.identity)
                await consumers.remove(api, one.consumer)
                self._say("removed", receiver=one.name, reason="the receiver is not set any more")
        await self._import(stored)
        if taken:
            await consumers.remove(api, consumers.FORMER)

    async def _import(self, stored: Letters) -> None:
        """Have the brokers keep the events that the release before left in its spool."""
        for former in self._former:
            deliveries = self._deliveries.get(former.receiver)
            known = deliveries.known if deliveries else None
            is_late = former.received + self._settings.retry_seconds < time.time()
            if known is None and not former.is_dead:
                continue
            letter = Letter(
                *(known.identity if known else identities.NONE, former.receiver, former.event),
                *(former.received, former.attempts, former.reason or "it waited for too long"),
            )
            # A run that was killed has moved some of them.
            kind = letters.DEAD if former.is_dead or is_late else letters.AGAIN
            await stored.add(kind, letter, f"former.{former.receiver}.{former.event.id}")
        former_spool.remove(self._settings.spool)
        if self._former:
            self._say("former-spool", deliveries=len(self._former))

    # -- state -----------------------------------------------------------------------------------

    async def _tell_state(self) -> None:
        """Write the waiting events, for `hgfleet webhooks status`."""
        written = ""
        while True:
            state = {name: one.lines.state() for name, one in self._deliveries.items()}
            text = json.dumps(state, indent=1) + "\n"
            if text != written:
                try:
                    files.replace(self._settings.state / STATE_FILE, text, durable=False)
                except OSError as error:
                    self._say("state", reason=error)
                written = text
            await asyncio.sleep(STATE_SECONDS)

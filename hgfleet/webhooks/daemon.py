"""The daemon of webhooks: each receiver has a consumer at the brokers, and tasks of its own.

So a slow or dead receiver delays no other receiver. For each repository a receiver gets a single
request at a time, and the next event only after the event before is delivered or dead. The host
keeps no state that another primary needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.daemons import service, systemd
from hgfleet.replication.protocol import pulling
from hgfleet.replication.protocol.broker_errors import sentence
from hgfleet.replication.protocol.connection import (
    FAILURES,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Connection,
    LostError,
)
from hgfleet.webhooks import consumers, former_spool, letters, receiver_identities
from hgfleet.webhooks.deliveries import Deliveries
from hgfleet.webhooks.letters import Letter, Letters
from hgfleet.webhooks.settings import STATE_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from hgfleet.replication.protocol.settings import Settings as Replication
    from hgfleet.webhooks.former_spool import Former
    from hgfleet.webhooks.settings import Settings

FORMER: Final = "former receivers"
"""The name in the state for receivers that are not set any more."""

DEAD_SECONDS: Final = 30.0
"""Between looks at the dead events."""

STATE_SECONDS: Final = 5.0
"""Between checks whether the state for `hgfleet webhooks status` has changed."""


class Daemon:
    """Delivers events until it is cancelled. `secrets` has the secret of each receiver by name."""

    def __init__(
        self,
        settings: Settings,
        replication: Replication,
        secrets: Mapping[str, bytes],
        log: Callable[..., None],
        former: Sequence[Former] = (),
    ) -> None:
        tls = ssl.create_default_context(cafile=str(settings.ca))
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._settings, self._replication, self._log = settings, replication, log
        self._deliveries = {
            receiver.name: Deliveries(receiver, secrets[receiver.name], settings, tls, log)
            for receiver in settings.receivers
        }
        self._connection = Connection(replication, "hgfleet-webhooks", log, self._live)
        self._is_assigned, self._former = False, former
        self._dead: dict[str, int] = {}
        """Dead events of each receiver, by its identity."""

    async def run(self) -> None:
        """Receive and deliver until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for deliveries in self._deliveries.values():
                tasks.create_task(deliveries.run())
            tasks.create_task(self._connection.run())
            tasks.create_task(self._write_state())
            tasks.create_task(service.watchdog())
            self._log("started", receivers=len(self._deliveries))
            systemd.notify("READY=1")

    async def _live(self, client: Client) -> None:
        api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
        stored = Letters(api)
        await stored.ensure(self._replication.replicas, self._replication.objects_bytes)
        if not self._is_assigned:
            await self._assign(client, api, stored)
            self._is_assigned = True
        await client.subscribe(letters.subject(letters.AGAIN), cb=self._on_letter)
        self._connection.established()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count_dead(client, stored))
            for deliveries in self._deliveries.values():
                tasks.create_task(self._receive(client, deliveries))

    async def _count_dead(self, client: Client, stored: Letters) -> None:
        """Count the dead events now and then, for the metrics of this host."""
        while not client.is_closed:
            # A broker that does not answer ends the connection; the last count stays.
            with contextlib.suppress(*FAILURES):
                self._dead = await stored.dead()
            await asyncio.sleep(DEAD_SECONDS)

    async def _receive(self, client: Client, deliveries: Deliveries) -> None:
        """Receive for a receiver; its trouble affects no other receiver."""
        problem, pause = "", FIRST_PAUSE
        while not client.is_closed:
            try:
                await deliveries.receive(client)
            except (*FAILURES, LostError) as error:
                reason = sentence(error, self._replication.brokers)
                if reason != problem and not client.is_closed:
                    self._log("receiver-away", receiver=deliveries.receiver.name, reason=reason)
                problem = reason
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _on_letter(self, message: Msg) -> None:
        identity = message.subject.rpartition(".")[2]
        for deliveries in self._deliveries.values():
            if deliveries.known is not None and deliveries.known.identity == identity:
                deliveries.poll_letters()

    # -- receivers -------------------------------------------------------------------------------

    async def _assign(self, client: Client, api: JetStreamContext, stored: Letters) -> None:
        """Give each receiver its consumer, and remove consumers of receivers not set any more."""
        there = list(await consumers.receivers(client))
        assigned = receiver_identities.assign(
            {
                name: (delivery.receiver.url, delivery.secret)
                for name, delivery in self._deliveries.items()
            },
            there,
        )
        taken = await consumers.taken(api)
        for name, deliveries in self._deliveries.items():
            deliveries.known, deliveries.taken = assigned[name], taken
            await consumers.ensure(api, assigned[name], taken.next if taken else 0)
        kept = {receiver.identity for receiver in assigned.values()}
        for receiver in there:
            if receiver.identity not in kept:
                await stored.forget(receiver.identity)
                await consumers.remove(api, receiver.consumer)
                self._log(
                    "removed", receiver=receiver.name, reason="the receiver is not set any more"
                )
        await self._import(stored)
        if taken:
            await consumers.remove(api, consumers.FORMER)

    async def _import(self, stored: Letters) -> None:
        """Move the events that the release before left in its spool to the brokers."""
        for former in self._former:
            deliveries = self._deliveries.get(former.receiver)
            known = deliveries.known if deliveries else None
            is_late = former.received + self._settings.retry_seconds < time.time()
            if known is None and not former.is_dead:
                continue
            letter = Letter(
                *(
                    known.identity if known else receiver_identities.NONE,
                    former.receiver,
                    former.event,
                ),
                *(former.received, former.attempts, former.reason or "it waited for too long"),
            )
            # A killed run may have moved some of them.
            kind = letters.DEAD if former.is_dead or is_late else letters.AGAIN
            await stored.add(kind, letter, f"former.{former.receiver}.{former.event.id}")
        former_spool.remove(self._settings.spool)
        if self._former:
            self._log("former-spool", deliveries=len(self._former))

    # -- state -----------------------------------------------------------------------------------

    def _state(self) -> dict[str, dict[str, object]]:
        """Describe the waiting and the dead events of each receiver."""
        dead = dict(self._dead)
        states = {}
        for name, deliveries in self._deliveries.items():
            identity = deliveries.known.identity if deliveries.known else ""
            states[name] = deliveries.lines.state() | {"dead": dead.pop(identity, 0)}
        if dead:
            states[FORMER] = {"dead": sum(dead.values())}
        return states

    async def _write_state(self) -> None:
        """Write the waiting events, for `hgfleet webhooks status`."""
        written = ""
        while True:
            text = json.dumps(self._state(), indent=1) + "\n"
            if text != written:
                try:
                    files.replace(self._settings.state / STATE_FILE, text, durable=False)
                except OSError as error:
                    self._log("state", reason=error)
                written = text
            await asyncio.sleep(STATE_SECONDS)

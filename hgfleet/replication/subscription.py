"""A mirror's connection to the broker: made again whenever it ends, with its consumer in order.

The user of a mirror needs these subjects of the broker; NAME is `messages.token` of its host,
STREAM that of pushes and that of documents:

| allowed | for |
| --- | --- |
| publish `$JS.API.CONSUMER.{CREATE,DURABLE.CREATE,INFO,MSG.NEXT}.STREAM.NAME` | pulling |
| publish `$JS.ACK.STREAM.NAME.>` | acknowledgements |
| publish `hgfleet.leases.NAME`, `hgfleet.applied.NAME` | how far it is |
| subscribe `hgfleet.confirmed.NAME`, `hgfleet.asked.NAME`, `_INBOX.>` | its lease, answers |
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from nats.js.api import DeliverPolicy

from hgfleet.replication import messages, pulling
from hgfleet.replication.connection import FAILURES, Connection, LostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from hgfleet.replication.settings import Settings

MOST_UNACKNOWLEDGED: Final = 512
"""Messages that a mirror has at a time: some 260 MB with the largest changegroups."""

HINTS_PAUSE_SECONDS: Final = 5.0
"""Before hints of documents are asked for again."""


class Subscription(Connection):
    """The connection, with the mirror's durable consumer.

    `receive` gets each message of the stream, `confirmed` the body of each confirmed heartbeat,
    `asked` that of each question which pushes the mirror shows; `connected` is called with each new
    connection, `documents` with the subject and the body of each hint that a document changed.
    """

    def __init__(
        self,
        settings: Settings,
        receive: Callable[[Msg], Awaitable[None]],
        confirmed: Callable[[bytes], None],
        asked: Callable[[bytes], Awaitable[None]],
        connected: Callable[[], None],
        documents: Callable[[str, bytes], None],
        say: Callable[..., None],
    ) -> None:
        super().__init__(settings, "hgfleet-applier", say, self._serve)
        self._receive, self._confirmed, self._on_connection = receive, confirmed, connected
        self._asked, self._documents = asked, documents
        self._name = messages.token(settings.host)

    async def _serve(self, client: Client) -> None:
        await client.subscribe(messages.confirmed(self._settings.host), cb=self._on_confirmed)
        await client.subscribe(messages.asked(self._settings.host), cb=self._on_asked)
        await self._ensure_consumer(client, messages.PUSHES, DeliverPolicy.ALL)
        self.established()
        self._on_connection()
        hints = asyncio.ensure_future(self._hints(client))
        try:
            async for message in pulling.messages_of(client, messages.PUSHES, self._name):
                await self._receive(message)
        finally:
            hints.cancel()

    async def _hints(self, client: Client) -> None:
        """Tell of documents that changed; without it they are looked at now and then.

        The broker may end this delivery alone, with the consumer or the stream.
        """
        while not client.is_closed:
            with contextlib.suppress(*FAILURES, LostError):
                await self._ensure_consumer(client, messages.DOCUMENTS, DeliverPolicy.NEW)
                async for message in pulling.messages_of(client, messages.DOCUMENTS, self._name):
                    self._documents(message.subject, message.data)
                    await message.ack()
            await asyncio.sleep(HINTS_PAUSE_SECONDS)

    async def _ensure_consumer(self, client: Client, stream: str, policy: DeliverPolicy) -> None:
        await pulling.ensure_consumer(client, stream, self._name, policy, MOST_UNACKNOWLEDGED)

    async def _on_confirmed(self, message: Msg) -> None:
        self._confirmed(message.data)

    async def _on_asked(self, message: Msg) -> None:
        await self._asked(message.data)

    async def answers(self) -> bool:
        """Whether the stream of pushes answers this mirror, which so misses nothing of it."""
        client = self.client
        if client is None or client.is_closed:
            return False
        try:
            api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
            await api.consumer_info(messages.PUSHES, self._name)
        except FAILURES:
            return False
        return True

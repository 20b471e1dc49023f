"""A mirror's connection to the broker: made again whenever it ends, with its durable consumer.

The rights of a mirror at the broker are in the template `nats.conf.j2` of the role `replication`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from nats.js.api import DeliverPolicy

from hgfleet.replication.protocol import messages, pulling
from hgfleet.replication.protocol.connection import FAILURES, Connection, LostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from hgfleet.replication.protocol.settings import Settings

MOST_UNACKNOWLEDGED: Final = 512
"""Messages that a mirror has at a time: some 260 MB with the largest changegroups."""

HINTS_PAUSE_SECONDS: Final = 5.0
"""Wait before hints of documents are requested again."""


class Subscription(Connection):
    """The connection, with the mirror's durable consumer.

    `receive` gets each message of the stream, `confirmed` each confirmation of a heartbeat, `asked`
    each question about the pushes that the mirror shows; `connected` is called after each new
    connection, `documents` with the subject and the body of each hint that a document changed.
    """

    def __init__(
        self,
        settings: Settings,
        receive: Callable[[Msg], Awaitable[None]],
        confirmed: Callable[[Msg], Awaitable[None]],
        asked: Callable[[Msg], Awaitable[None]],
        connected: Callable[[], None],
        documents: Callable[[str, bytes], None],
        say: Callable[..., None],
    ) -> None:
        super().__init__(settings, "hgfleet-applier", say, self._serve)
        self._receive, self._confirmed, self._on_connection = receive, confirmed, connected
        self._asked, self._documents = asked, documents
        self._name = messages.token(settings.host)

    async def _serve(self, client: Client) -> None:
        for subject, receive in (
            (messages.confirmed(self._settings.host), self._confirmed),
            (messages.asked(self._settings.host), self._asked),
        ):
            await client.subscribe(subject, cb=receive)
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
        """Pass on hints that documents changed; without hints, documents are checked now and then.

        The broker may end only this delivery, with the consumer or the stream.
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

    async def answers(self) -> bool:
        """Whether the stream of pushes answers this mirror, so that it misses no push."""
        client = self.client
        if client is None or client.is_closed:
            return False
        try:
            api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
            await api.consumer_info(messages.PUSHES, self._name)
        except FAILURES:
            return False
        return True

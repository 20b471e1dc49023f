"""Publication of hints of changed documents, and the mirrors that have followed them."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final

from hgfleet.replication.primary import visibility
from hgfleet.replication.primary.broker import BrokerError
from hgfleet.replication.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.replication.primary.broker import Broker
    from hgfleet.replication.primary.leases import Members
    from hgfleet.replication.primary.waiting import Waiting
    from hgfleet.replication.protocol.messages import Brought, Hint

HINT_SECONDS: Final = 0.5
"""Pause between two attempts to send a hint to mirrors."""


class HintPublisher:
    """The hints of a relay. `is_settled` is a function of the relay."""

    def __init__(
        self,
        broker: Broker,
        members: Members,
        waiting: Waiting,
        is_settled: Callable[[], bool],
        say: Callable[..., None],
    ) -> None:
        self._broker, self._members, self._waiting = broker, members, waiting
        self._is_settled, self._say = is_settled, say
        self._hints = visibility.Hints(uuid.uuid4().hex)
        self._publishing: set[asyncio.Future[None]] = set()

    async def publish(self, document: str, hint: Hint | None = None) -> None:
        """Publish a hint that a document changed. Raises BrokerError."""
        hint = hint or self._hints.next()
        subject = messages.documents(document)
        await self._broker.publish(messages.DOCUMENTS, subject, hint.body(), {})
        self._hints.published(document, hint)
        self._waiting.tell()

    def begin(self, document: str) -> tuple[Hint, asyncio.Future[None]]:
        """Publish a hint that a document changed, in a task that ends when the stream has it."""
        hint = self._hints.next()
        publishing = asyncio.ensure_future(self._try(document, hint))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        return hint, publishing

    async def _try(self, document: str, hint: Hint) -> None:
        while True:
            try:
                await self.publish(document, hint)
            except BrokerError as error:
                if self._is_settled():
                    self._say("hint-lost", reason=error)
                    self._waiting.tell()
                    return
                await asyncio.sleep(HINT_SECONDS)
            else:
                return

    def brought(self, message: Brought) -> None:
        """Record that a mirror has followed a hint."""
        if self._hints.brought(message):
            self._waiting.tell()

    def answer(self, document: str, hint: Hint, seconds: float, now: float) -> visibility.Answer:
        """Return the answer for a session at this moment."""
        return visibility.answer(
            self._hints.showing(document, hint),
            self._members.live(now),
            self._members.mirrors,
            published=self._hints.is_published(document, hint),
            seconds=seconds,
        )

"""A mirror's hints of documents: the broker may end their delivery, and nothing else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import nats.js.errors

from hgfleet.replication.mirror import subscription
from hgfleet.replication.mirror.subscription import Subscription
from hgfleet.replication.protocol import messages, pulling
from hgfleet.replication.protocol.connection import LostError
from hgfleet.replication.protocol.settings import Role, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


def test_hints_go_on_after_the_broker_ended_their_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """409 of a consumer that was removed; then the broker is slow; then it is there again."""
    monkeypatch.setattr(subscription, "HINTS_PAUSE_SECONDS", 0.0)
    settings = Settings(Role.MIRROR, "hgweb1", "hg1", "https://hg1:7460", (), ())
    client: Any = SimpleNamespace(is_closed=False)
    ensured: list[str] = []
    hints: list[tuple[str, bytes]] = []

    async def ensure(_client: Any, stream: str, *_: Any) -> None:
        ensured.append(stream)
        if len(ensured) == 2:
            raise nats.js.errors.ServiceUnavailableError

    async def messages_of(_client: Any, _stream: str, _name: str) -> AsyncIterator[Any]:
        async def ack() -> None:
            # The connection ends with the hint after the delivery did.
            client.is_closed = len(hints) == 2

        yield SimpleNamespace(subject="tokens", data=b"%d" % len(ensured), ack=ack)
        raise LostError("the broker ends the delivery (409 Consumer Deleted)")

    def hint(subject: str, body: bytes) -> None:
        hints.append((subject, body))

    async def story() -> None:
        ignore: Any = None
        subscribed = Subscription(settings, ignore, ignore, ignore, ignore, hint, ignore)
        await asyncio.wait_for(subscribed._hints(client), 5.0)

    monkeypatch.setattr(pulling, "ensure_consumer", ensure)
    monkeypatch.setattr(pulling, "messages_of", messages_of)
    asyncio.run(story())
    assert hints == [("tokens", b"1"), ("tokens", b"3")]
    assert ensured == [messages.DOCUMENTS] * 3

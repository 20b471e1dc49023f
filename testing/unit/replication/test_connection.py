"""Connections to brokers: the daemons that have them end when they are told to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import nats
import nats.errors
import pytest

from hgfleet.replication.mirror.subscription import Subscription
from hgfleet.replication.primary.broker import Broker
from hgfleet.replication.protocol import connection
from hgfleet.replication.protocol.connection import Connection
from hgfleet.replication.protocol.settings import Role, Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SETTINGS = Settings(
    Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", ("nats://broker1:4222",), ("hgweb1",)
)


async def nothing(*_: Any) -> None:
    """Do nothing with a new connection."""


def ignore(*_: Any, **__: Any) -> None:
    """Ignore an event of a connection."""


def relay() -> Awaitable[None]:
    return Broker(SETTINGS, ignore, {}, nothing).run()


def applier() -> Awaitable[None]:
    return Subscription(SETTINGS, nothing, ignore, nothing, ignore, ignore, ignore).run()


def webhooks() -> Awaitable[None]:
    return Connection(SETTINGS, "webhooks", ignore, nothing).run()


@pytest.mark.parametrize("daemon", [relay, applier, webhooks])
def test_a_daemon_ends_though_its_client_swallows_the_cancellation(
    daemon: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        began = asyncio.Event()

        async def swallow(*_: Any, **__: Any) -> None:
            began.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise OSError("the connection ended")

        monkeypatch.setattr(nats, "connect", swallow)
        task = asyncio.ensure_future(daemon())
        await began.wait()
        task.cancel()
        await asyncio.wait({task}, timeout=30)
        assert task.cancelled()

    asyncio.run(story())


class Client:
    """A client of nats-py with the methods that a life of a connection calls."""

    is_closed = False
    connected_url = None

    def __init__(self, callbacks: dict[str, Any]) -> None:
        self.callbacks = callbacks

    async def close(self) -> None:
        """End, as nats-py does."""
        self.is_closed = True
        await self.callbacks["closed_cb"]()


class Lives:
    """Makes connections, and keeps what they report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clients: list[Client] = []
        self.said: list[tuple[str, dict[str, object]]] = []
        monkeypatch.setattr(nats, "connect", self._connect)
        monkeypatch.setattr(connection, "FIRST_PAUSE", 0.01)

    async def _connect(self, *_: Any, **options: Any) -> Client:
        self.clients.append(Client(options))
        return self.clients[-1]

    def say(self, event: str, **fields: object) -> None:
        self.said.append((event, fields))


def test_a_connection_that_ends_ends_what_lives_of_it_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives = Lives(monkeypatch)
    ended: list[int] = []

    async def live(_client: Any) -> None:
        made.established()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    made = Connection(SETTINGS, "test", lives.say, live)

    async def story() -> None:
        task = asyncio.ensure_future(made.run())
        for number in (1, 2, 3):
            async with asyncio.timeout(30):
                while not made.ready.is_set():
                    await asyncio.sleep(0.005)
            assert (len(lives.clients), len(ended), made.problem) == (number, number - 1, "")
            client = lives.clients[-1]
            if number == 1:
                await client.close()
            elif number == 2:
                await client.callbacks["error_cb"](OSError("no permission"))
                await client.close()
            else:
                made.lose(TimeoutError("no answer"))
            assert not made.ready.is_set()
        async with asyncio.timeout(30):
            while len(lives.clients) < 4:
                await asyncio.sleep(0.005)
        assert all(client.is_closed for client in lives.clients[:3])
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(story())
    told = [fields["reason"] for event, fields in lives.said if event == "broker-away"]
    for reason, expected in zip(told, ("ended", "no permission", "no answer"), strict=True):
        assert expected in str(reason)
    assert ended == [1] * 4


def test_a_request_that_the_broker_does_not_permit_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its user may not use the subject: no answer comes, but an error is reported."""
    lives = Lives(monkeypatch)

    async def live(client: Any) -> None:
        if len(lives.clients) == 1:
            refused = nats.errors.Error("nats: permissions violation for publish to x")
            await client.callbacks["error_cb"](refused)
            raise nats.errors.TimeoutError
        raise KeyError("the end")

    with pytest.raises(KeyError):
        asyncio.run(Connection(SETTINGS, "test", lives.say, live).run())
    ((event, fields),) = lives.said
    assert event == "broker-away"
    assert "does not permit" in str(fields["reason"])


def test_an_error_that_is_not_of_the_connection_ends_the_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives = Lives(monkeypatch)

    async def live(_client: Any) -> None:
        if len(lives.clients) == 1:
            raise TimeoutError("not yet")
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        asyncio.run(Connection(SETTINGS, "test", lives.say, live).run())
    assert len(lives.clients) == 2
    assert lives.clients[-1].is_closed

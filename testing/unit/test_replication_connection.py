"""Connections to brokers: the daemons that have them end when they are told to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import nats
import pytest

from hgfleet.replication import pulling
from hgfleet.replication.broker import Broker
from hgfleet.replication.settings import Role, Settings
from hgfleet.replication.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SETTINGS = Settings(
    Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", ("nats://broker1:4222",), ("hgweb1",)
)


async def nothing(*_: Any) -> None:
    """Take what a connection gives."""


def ignore(*_: Any, **__: Any) -> None:
    """Take what a connection tells."""


def relay() -> Awaitable[None]:
    return Broker(SETTINGS, ignore, {}, nothing).run()


def applier() -> Awaitable[None]:
    return Subscription(SETTINGS, nothing, ignore, nothing, ignore, ignore, ignore).run()


def webhooks() -> Awaitable[None]:
    return pulling.for_ever(SETTINGS, "webhooks", nothing, ignore)


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

"""A push that begins asks a real relay whether its copy can be had."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hgfleet.hg import required_copy, wake
from testing.integration.replication.relaying import Mirror, relaying, until

if TYPE_CHECKING:
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker


async def refusal(primary: Primary, required: str, wait: float = 0.0) -> str:
    relay, asked = str(primary.settings.wake), required_copy.request(required)
    return required_copy.refusal(required, await asyncio.to_thread(wake.ask, relay, asked, wait))


def test_a_push_begins_as_long_as_its_copy_can_be_had(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        assert "does not answer" in await refusal(primary, "broker")
        async with relaying(primary) as relay:
            assert await refusal(primary, "broker") == ""
            assert "no mirror is connected" in await refusal(primary, "mirror")
            async with Mirror("hgweb1", broker) as mirror:
                await until("a mirror", lambda: relay.members.live(time.monotonic()))
                assert await refusal(primary, "mirror") == ""
                assert mirror.confirmed
            broker.kill()
            await until("the broker is away", lambda: not relay.broker.ready.is_set())
            for required in ("broker", "mirror"):
                assert "the broker is away" in await refusal(primary, required)
            # A person is not kept waiting for a broker that does not come.
            began = time.monotonic()
            assert await refusal(primary, "broker", wait=50.0)
            assert time.monotonic() - began < 25

    asyncio.run(story())


def test_a_push_waits_for_a_broker_that_is_restarted(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary, settle_seconds=60.0) as relay:
            broker.kill()
            await until("the broker is away", lambda: not relay.broker.ready.is_set())
            waiting = asyncio.ensure_future(refusal(primary, "broker", wait=50.0))
            await until("the session waits", lambda: relay._waiting._events)
            assert not waiting.done()
            broker.start()
            assert await waiting == ""

    asyncio.run(story())


def test_a_broker_that_takes_no_pushes_is_no_copy(primary: Primary) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            relay.refusals.note("7d" * 16, "the stream takes no more messages")
            assert "takes no pushes" in await refusal(primary, "broker")
            relay.refusals.end("7d" * 16)
            assert await refusal(primary, "broker") == ""

    asyncio.run(story())

"""A relay at a broker whose disk is full, or that refuses messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import nats

from hgfleet.pushlog.record import hash_of
from hgfleet.replication.mirror import status
from hgfleet.replication.primary.publisher import REFUSED_SECONDS
from hgfleet.replication.protocol import messages
from testing.integration.replication.relaying import (
    Mirror,
    events,
    identity,
    pushed,
    relaying,
    until,
)

if TYPE_CHECKING:
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker

DISK = 128 * 2**20
LARGE = b"x" * 900_000


def test_a_full_stream_of_pushes_drops_the_oldest_and_blocks_no_stream(
    primary: Primary, broker: Broker
) -> None:
    broker.kill()
    store = broker.folder / "jetstream"
    broker.more = f'jetstream {{ store_dir: "{store}", max_file_store: {DISK} }}'
    broker.start()
    primary.settings = replace(primary.settings, objects_bytes=DISK // 4)

    async def story() -> None:
        client = await nats.connect(broker.url)
        api = client.jetstream()
        # The release before made the stream without a bound.
        await api.add_stream(name=messages.PUSHES, subjects=["hgfleet.pushes.*"])
        async with relaying(primary) as relay:
            assert relay.state()["broker"]["warnings"] == []
            sent = DISK // len(LARGE)
            for _ in range(sent):
                await api.publish(messages.pushes("f" * 32), LARGE)
            info = await api.stream_info(messages.PUSHES)
            assert 0 < info.state.messages < sent
            await pushed(primary, "team/tool", primary.record("team/tool"))
            assert events(relay).count("published") == 1
            assert relay.state()["broker"]["problem"] == ""
            await api.publish(messages.documents("registry"), b"{}")
            for _ in range(4):
                await api.publish(messages.events("f" * 32), LARGE)
            last = await api.get_last_msg(messages.PUSHES, messages.pushes(identity("team/tool")))
            assert last.seq == sent + 1
        await client.close()

    asyncio.run(story())


def test_a_push_that_the_broker_refuses_is_kept_and_sent_when_there_is_room(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay, Mirror("hgweb1", broker) as mirror:
            client = await nats.connect(broker.url)
            api = client.jetstream()
            config = (await api.stream_info(messages.PUSHES)).config
            await api.update_stream(config.evolve(max_msgs=1, discard="new"))
            for _ in range(3):
                record = primary.record("team/tool")
                relay.add([identity("team/tool")])
            await until("it is refused", lambda: relay.state()["broker"]["problem"])
            assert not status.is_well(relay.state(), 0)
            # Heartbeats still pass the broker: mirrors fetch the push from the source.
            await until("the mirror is told", lambda: mirror.confirmed[-1].unsent)
            assert list(mirror.confirmed[-1].pushes()) == [
                (record.repository, record.id, hash_of(record.line()))
            ]
            assert relay.state()["waiting_seconds"] >= REFUSED_SECONDS
            await api.update_stream(config)
            await until("all are published", lambda: events(relay).count("published") == 3)
            last = await api.get_last_msg(messages.PUSHES, messages.pushes(record.repository))
            assert messages.named(last.headers)[1] == record.id  # type: ignore[index]
            assert (relay.state()["waiting"], relay.state()["waiting_seconds"]) == (0, 0.0)
            await until("the mirror is told", lambda: not mirror.confirmed[-1].unsent)
            assert status.is_well(relay.state(), 0)
            await client.close()

    asyncio.run(story())

"""Push events of the relay, against a real broker."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.replication.protocol import messages
from testing.integration.replication.relaying import (
    SECONDS,
    Mirror,
    events,
    identity,
    ids,
    pushed,
    relaying,
    stream_of,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.replication.primary.relay import Relay
    from testing.conftest import WaitFor
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker


async def announced(broker: Broker) -> list[str]:
    return ids(await stream_of(broker, messages.EVENTS))


def numbers(path: str, *given: int) -> list[str]:
    return [f"{identity(path)}.{number}" for number in given]


async def until_announced(relay: Relay, count: int) -> None:
    await until(f"{count} events", lambda: events(relay).count("announced") >= count)


def later(primary: Primary) -> Any:
    """Append a record with the present time, as pushes do."""
    return primary.record("team/tool", time=int(time.time() * 1000))


def test_an_event_goes_out_when_every_live_mirror_shows_the_push(
    primary: Primary, broker: Broker
) -> None:
    # No lease ends while the machine stalls.
    primary.settings = replace(primary.settings, lease_seconds=120.0)

    async def story() -> None:
        async with (
            relaying(primary) as relay,
            Mirror("hgweb1", broker),
            Mirror("hgweb2", broker) as slow,
        ):
            await until("leases", lambda: len(relay.members.live(time.monotonic())) == 2)
            slow.is_slow = True
            record = later(primary)
            await pushed(primary, "team/tool", record, wait=1)
            await until(
                "hgweb2 alone is waited for",
                lambda: relay.state()["events"]["mirrors"] == ["hgweb2"],
            )
            assert relay.state()["events"]["waiting"] == 1
            assert await announced(broker) == []
            slow.is_slow = False
            await pushed(primary, "team/tool", later(primary))
            await until_announced(relay, 2)
            assert relay.state()["events"]["waiting"] == 0
        sent = await stream_of(broker, messages.EVENTS)
        assert ids(sent) == numbers("team/tool", 1, 2)
        event = json.loads(sent[0][1])
        assert (event["repository"], event["push"], event["user"]) == ("team/tool", 1, "alice")
        assert event["public"] is True

    asyncio.run(story())


def test_a_dead_mirror_holds_no_event_back(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            async with Mirror("hgweb1", broker), Mirror("hgweb2", broker) as dead:
                await until("leases", lambda: len(relay.members.live(time.monotonic())) == 2)
                dead.is_slow = True
                await pushed(primary, "team/tool", later(primary), wait=0.1)
            await until_announced(relay, 1)
            # No mirror is left: an event is due when the push is published.
            await pushed(primary, "team/tool", later(primary))
            await until_announced(relay, 2)
        assert await announced(broker) == numbers("team/tool", 1, 2)

    asyncio.run(story())


def test_a_relay_that_starts_asks_mirrors_which_pushes_they_show(
    primary: Primary, broker: Broker
) -> None:
    """They have told the relay before it, or their message was lost."""

    async def story() -> None:
        async with Mirror("hgweb1", broker) as first, Mirror("hgweb2", broker) as second:
            async with relaying(primary) as relay:
                await until("leases", lambda: len(relay.members.live(time.monotonic())) == 2)
                second.is_silent = True
                await pushed(primary, "team/tool", later(primary), wait=0.1)
                await until("both show it", lambda: len(first.shown) == len(second.shown) == 1)
                relay.announcer._pending.clear()
            async with relaying(primary) as relay:
                await until_announced(relay, 1)
                assert second.asked == first.asked == {identity("team/tool")}
        assert await announced(broker) == numbers("team/tool", 1)

    asyncio.run(story())


def test_a_repository_that_is_removed_leaves_no_event_waiting(
    primary: Primary, broker: Broker
) -> None:
    primary.settings = replace(primary.settings, lease_seconds=9.0)

    async def story() -> None:
        async with (
            relaying(primary, scan_seconds=0.1) as relay,
            Mirror("hgweb1", broker) as slow,
        ):
            await until("the lease", lambda: relay.members.live(time.monotonic()))
            slow.is_slow = True
            await pushed(primary, "team/tool", later(primary), wait=0.1)
            await until("it waits", lambda: relay.state()["events"]["waiting"] == 1)
            primary.register_all("team/other")
            await until("it is given up", lambda: relay.state()["events"]["waiting"] == 0)
        assert await announced(broker) == []

    asyncio.run(story())


def test_a_private_repository_is_marked_and_a_push_before_the_first_start_has_no_event(
    primary: Primary, broker: Broker
) -> None:
    primary.record("team/other", time=1000)
    repository = Repository("team/tool", "", ("core",), (), True, ())
    other = Repository("team/other", "", "public", (), True, ())
    primary.register(Registry({"team/other": other, "team/tool": repository}))

    async def story() -> None:
        async with (
            Mirror("hgweb1", broker),
            Mirror("hgweb2", broker),
            relaying(primary) as relay,
        ):
            await until("the old push", lambda: relay.positions.announced(identity("team/other")))
            await pushed(primary, "team/tool", later(primary))
            await until_announced(relay, 1)
        sent = await stream_of(broker, messages.EVENTS)
        assert ids(sent) == numbers("team/tool", 1)
        assert json.loads(sent[0][1])["public"] is False

    asyncio.run(story())


def test_a_lost_position_costs_no_second_event(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with Mirror("hgweb1", broker), Mirror("hgweb2", broker):
            async with relaying(primary) as relay:
                for _ in range(3):
                    await pushed(primary, "team/tool", later(primary))
                await until_announced(relay, 3)
            for file in primary.settings.positions.iterdir():
                file.unlink()
            async with relaying(primary) as relay:
                await pushed(primary, "team/tool", later(primary))
                await until_announced(relay, 1)
                assert events(relay).count("announced") == 1
        assert await announced(broker) == numbers("team/tool", 1, 2, 3, 4)

    asyncio.run(story())


def test_events_wait_for_a_broker_that_is_down(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await pushed(primary, "team/tool", later(primary))
            broker.kill()
            await until("the loss is noticed", lambda: not relay.broker.ready.is_set())
            for _ in range(3):
                await pushed(primary, "team/tool", later(primary))
            await asyncio.to_thread(broker.start)
            await until_announced(relay, 4)
        assert await announced(broker) == numbers("team/tool", 1, 2, 3, 4)

    asyncio.run(story())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_relay_announces_each_push_once(
    primary: Primary, broker: Broker, wait_for: WaitFor, tmp_path: Path, when: str
) -> None:
    """Killed at its third event, before it is sent or when the broker has it."""
    for _ in range(5):
        # Published by the first relay after its start, so later than that.
        primary.record("team/tool", time=int((time.time() + 3600) * 1000))
    with (tmp_path / "relay.log").open("wb") as log:
        relay = primary.start_relay(log.fileno(), when, messages.EVENTS)
        assert relay.wait(SECONDS) == -signal.SIGKILL
        assert len(asyncio.run(announced(broker))) == (3 if when == "after" else 2)
        relay = primary.start_relay(log.fileno())
        try:
            wait_for("all events", lambda: len(asyncio.run(announced(broker))) >= 5, SECONDS)
        finally:
            relay.kill()
            relay.wait()
    assert asyncio.run(announced(broker)) == numbers("team/tool", 1, 2, 3, 4, 5)

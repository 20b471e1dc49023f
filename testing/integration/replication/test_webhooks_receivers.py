"""Receivers of webhooks that are added, removed, renamed and made again; the release before."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import TYPE_CHECKING

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from hgfleet.replication.protocol import messages
from hgfleet.webhooks import (
    consumers,
    former_spool,
)
from testing.integration.replication.relaying import until
from testing.integration.replication.webhook_host import IDENTITY, Host, Server, event

if TYPE_CHECKING:
    import pytest


def test_a_receiver_that_is_made_again_with_its_name_gets_nothing_of_the_former(
    host: Host, servers: list[Server]
) -> None:
    servers[0].statuses += [404]
    host.receivers[0]["private"] = True

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, is_public=False)
            await until("a dead one", lambda: host.has_said("dead"))
            servers[0].is_open.clear()
            await host.announce(2, is_public=False)
            await until("a request", lambda: servers[0].numbers == [1, 2])
        # Another URL and another secret under the name.
        host.receivers[0]["url"] = servers[1].url
        host.receivers[1]["url"] = servers[0].url
        host.secrets = {"one": b"another secret of ours", "two": b"and yet another one"}
        async with host.delivering():
            await host.announce(3)
            await until("the third", lambda: servers[1].numbers == [3])
            assert len(await host.consumers()) == 2
        # Its dead event is of the former receiver.
        assert f"one {IDENTITY}.1 " in await host.command("dead", "list", "one")
        assert await host.command("dead", "retry", "one") == "one: 0 tried again\n"
        refusal = await host.command("dead", "retry", "one", f"{IDENTITY}.1", code=2)
        assert "of a former receiver" in refusal
        assert await host.command("dead", "drop", "one") == "one: 1 removed\n"

    asyncio.run(story())
    assert servers[1].numbers == [3]


def test_a_receiver_that_is_renamed_or_repaired_goes_on(host: Host, servers: list[Server]) -> None:
    servers[0].statuses += [404]
    host.receivers.pop()

    async def story() -> None:
        async with host.delivering():
            await host.announce(9, path="team/other")
            await until("a dead one", lambda: host.has_said("dead"))
            servers[0].is_open.clear()
            await host.announce(1, 2)
            await until("a request", lambda: servers[0].numbers == [9, 1])
        host.receivers[0]["name"] = "renamed"
        await host.announce(3)
        async with host.delivering():
            await until("again", lambda: servers[0].numbers == [9, 1, 1])
            assert await host.consumers() == {"renamed": 3}
            assert await host.command("dead", "drop", "renamed") == "renamed: 1 removed\n"
        host.receivers[0]["url"] = servers[1].url
        async with host.delivering():
            await host.is_quiet()
        host.secrets = {"renamed": b"another secret of ours"}
        async with host.delivering():
            await host.announce(4)
            await host.is_quiet()

    asyncio.run(story())
    assert servers[1].numbers == [1, 2, 3, 4]


def test_the_consumer_of_a_removed_receiver_is_deleted_and_a_new_one_begins_now(
    host: Host, servers: list[Server]
) -> None:
    two = host.receivers.pop()

    async def story() -> None:
        async with host.delivering():
            await host.announce(1)
            await until("the first", lambda: servers[0].numbers == [1])
        host.receivers.append(two)
        async with host.delivering():
            await host.announce(2)
            await until("the second", lambda: servers[1].numbers == [2])
        del host.receivers[0]
        async with host.delivering():
            assert host.has_said("removed")
            assert [*await host.consumers()] == ["two"]
            await host.announce(3)
            await until("the third", lambda: servers[1].numbers == [2, 3])

    asyncio.run(story())
    assert servers[0].numbers == [1, 2]


def test_a_receiver_that_may_no_longer_read_private_repositories_is_told_nothing_again(
    host: Host, servers: list[Server]
) -> None:
    servers[0].statuses += [404]
    host.receivers[0]["private"] = True

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, is_public=False)
            await until("a dead one", lambda: host.has_said("dead"))
        host.receivers[0]["private"] = False
        async with host.delivering():
            assert await host.command("dead", "retry", "one") == "one: 1 tried again\n"
            await host.announce(2)
            await until("the second", lambda: servers[0].numbers == [1, 2])
            assert await host.command("status") == "one: nothing waits\ntwo: nothing waits\n"

    asyncio.run(story())
    assert servers[0].numbers == [1, 2]


def test_the_spool_of_the_release_before_is_delivered_once_and_then_gone(
    host: Host, servers: list[Server]
) -> None:
    """The former daemon had taken pushes 1 to 4, and 4 is not acknowledged yet."""
    former = sqlite3.connect(host.folder / former_spool.FILE)
    former.execute(
        "create table deliveries_1 (receiver text, repository text, number integer, path text, "
        "public integer, body blob, received real, attempts integer, due real, dead integer, "
        "reason text)"
    )
    now = time.time()
    for receiver, number, received, dead in (
        ("one", 2, now, 0),
        ("one", 3, now, 0),
        ("one", 1, now, 1),
        ("two", 1, now - 1e6, 0),
        ("gone", 1, now, 0),
        ("gone", 2, now, 1),
    ):
        content = (receiver, IDENTITY, number, "team/tool", 1, event(number), received, 3, 0.0)
        former.execute(
            "insert into deliveries_1 values (?,?,?,?,?,?,?,?,?,?,?)", (*content, dead, "why")
        )
    former.commit()
    former.close()

    async def story() -> None:
        await host.with_stream()
        await host.announce(1, 2, 3)
        async with host.asking() as api:
            await api.add_consumer(messages.EVENTS, durable_name=consumers.FORMER)
            taken = await api.pull_subscribe_bind(consumers.FORMER, messages.EVENTS)
            for message in await taken.fetch(3):
                await message.ack_sync()
        await host.announce(4)
        async with host.delivering():
            await host.is_quiet()
            assert not (host.folder / former_spool.FILE).exists()
            dead = [
                (letter.receiver, letter.event.number, letter.reason)
                for letter in await host.dead()
            ]
            assert sorted(dead) == [("gone", 2, "why"), ("one", 1, "why"), ("two", 1, "why")]
            async with host.asking() as api:
                there = [info.name for info in await api.consumers_info(messages.EVENTS)]
                assert consumers.FORMER not in there
        async with host.delivering():
            await host.announce(5)
            await host.is_quiet()

    asyncio.run(story())
    assert servers[0].numbers == [2, 3, 4, 5]
    assert servers[1].numbers == [4, 5]


def test_after_a_rollback_what_the_release_before_took_is_not_delivered_again(
    host: Host, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Event 2 waited before the rollback; the former daemon took 3 and 4, and not 5."""
    monkeypatch.setattr(consumers, "CLOCK_SECONDS", 0.0)
    two = host.receivers.pop()

    async def story() -> None:
        async with host.delivering():
            await host.announce(1)
            await host.is_quiet()
        await host.announce(2)
        async with host.asking() as api:
            new = ConsumerConfig(
                durable_name=consumers.FORMER,
                deliver_policy=DeliverPolicy.NEW,
                ack_policy=AckPolicy.EXPLICIT,
            )
            await api.add_consumer(messages.EVENTS, new)
            await host.announce(3, 4)
            taken = await api.pull_subscribe_bind(consumers.FORMER, messages.EVENTS)
            for message in await taken.fetch(2):
                await message.ack_sync()
        await host.announce(5)
        # A receiver that was added in the meantime.
        host.receivers.append(two)
        async with host.delivering():
            await host.is_quiet()

    asyncio.run(story())
    assert servers[0].numbers == [1, 2, 5]
    assert servers[1].numbers == [5]

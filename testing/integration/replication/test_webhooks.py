"""Webhooks: a real broker, the daemon, and HTTP servers on this host."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import nats

from hgfleet.replication.protocol import messages
from hgfleet.webhooks import (
    attempts,
    consumers,
    daemon,
)
from hgfleet.webhooks.lines import Lines
from testing.integration.replication.relaying import until
from testing.integration.replication.webhook_host import IDENTITY, SECRET, Host, Server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_event_arrives_signed_at_the_receivers_that_take_it(
    host: Host, servers: list[Server]
) -> None:
    host.receivers[0]["private"] = True
    host.receivers[1]["repositories"] = ["team/*"]

    async def story() -> None:
        async with host.delivering():
            await host.announce(1)
            await host.announce(1, path="core", is_public=False)
            await host.announce(2)
            await until("two", lambda: len(servers[1].received) == 2)
            await until("three", lambda: len(servers[0].received) == 3)
            await host.is_quiet()

    asyncio.run(story())
    assert servers[1].numbers == [1, 2]
    assert sorted(servers[0].numbers) == [1, 1, 2]
    got = servers[1].received[0]
    assert got.path == "/hook?token=1"
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["X-Hgfleet-Delivery"] == f"{IDENTITY}.1"
    made = attempts.signature(SECRET, got.headers["X-Hgfleet-Timestamp"], got.body)
    assert got.headers["X-Hgfleet-Signature-256"] == f"sha256={made}"
    assert json.loads(got.body)["repository"] == "team/tool"


def test_failures_are_tried_again_and_the_order_stays(host: Host, servers: list[Server]) -> None:
    servers[0].statuses += [503, 429, 302, 500]

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2, 3)
            await until("all", lambda: servers[0].numbers[-1:] == [3])
            await host.is_quiet()

    asyncio.run(story())
    assert servers[0].numbers == [1, 1, 1, 1, 1, 2, 3]
    # The redirect is not followed, and the name of a delivery stays.
    assert {request.path for request in servers[0].received} == {"/hook?token=1"}
    assert len({request.headers["X-Hgfleet-Delivery"] for request in servers[0].received}) == 3
    assert servers[1].numbers == [1, 2, 3]


def test_a_receiver_that_hangs_delays_no_other(host: Host, servers: list[Server]) -> None:
    servers[0].is_open.clear()

    async def story() -> None:
        async with host.delivering():
            for path in ("a", "b", "c", "d", "e", "f"):
                await host.announce(1, 2, path=path)
            await until("the other", lambda: len(servers[1].received) == 12)
            assert (await host.consumers())["one"] == 12
            # A request for each repository, and a bounded number of them.
            await until("requests", lambda: len(servers[0].received) == 4)
            assert servers[0].numbers == [1, 1, 1, 1]
            servers[0].is_open.set()
            await until("all", lambda: len(servers[0].received) == 12)

    asyncio.run(story())


def test_events_wait_while_the_daemon_or_the_broker_is_away(
    host: Host, servers: list[Server]
) -> None:
    servers[0].is_open.clear()

    async def story() -> None:
        async with host.delivering():
            await host.announce(1)
            await until("a request", lambda: servers[0].numbers == [1])
            await until("the other has it", lambda: servers[1].numbers == [1])
        servers[0].is_open.set()
        await host.announce(2, 3)
        async with host.delivering():
            await until("all", lambda: servers[0].numbers[-1:] == [3])
            host.broker.kill()
            await until("the loss is noticed", lambda: host.has_said("broker-away"))
            await asyncio.to_thread(host.broker.start)
            await host.announce(4)
            await until("the fourth", lambda: servers[0].numbers[-1:] == [4])
            await host.is_quiet()

    asyncio.run(story())
    # The daemon ended before the answer to the first.
    assert servers[0].numbers == [1, 1, 2, 3, 4]
    assert servers[1].numbers == [1, 2, 3, 4]


def test_a_consumer_that_the_broker_lost_is_made_again_where_it_was(
    host: Host, servers: list[Server]
) -> None:
    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2)
            await until("both", lambda: servers[1].numbers == servers[0].numbers == [1, 2])
            async with host.asking() as api:
                for info in await api.consumers_info(messages.EVENTS):
                    await api.delete_consumer(messages.EVENTS, info.name)
            await host.announce(3)
            await until("the third", lambda: servers[0].numbers[-1:] == [3])
            await host.is_quiet()

    asyncio.run(story())
    assert servers[0].numbers == servers[1].numbers == [1, 2, 3]


def test_what_is_no_event_stops_nothing(host: Host, servers: list[Server]) -> None:
    async def story() -> None:
        async with host.delivering():
            client = await nats.connect(host.broker.url)
            for body in (b"", b"[" * 5000, b'{"version": 9}'):
                await client.jetstream(timeout=30).publish(messages.events(IDENTITY), body)
            await client.close()
            await host.announce(1)
            await until("the event", lambda: servers[0].numbers == [1])
            assert host.has_said("event-unreadable", 3)

    asyncio.run(story())


def test_refused_events_are_listed_tried_again_and_dropped(
    host: Host, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "DEAD_SECONDS", 0.1)
    monkeypatch.setattr(daemon, "STATE_SECONDS", 0.1)
    servers[0].statuses += [404, 410, 403]
    command = host.command

    def told() -> list[int]:
        """The dead events of each receiver, as the metrics have them."""
        state = json.loads((host.folder / "state.json").read_bytes())
        return [receiver["dead"] for receiver in state.values()]

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2, 3, 4)
            await until("all", lambda: servers[0].numbers == [1, 2, 3, 4])
            await until("three are dead", lambda: host.has_said("dead", 3))
            dead = [fields["repository"] for event, fields in host.said if event == "dead"]
            assert dead == ["team/tool"] * 3
            await until("they are counted", lambda: told() == [3, 0])
            first, *_ = listed = (await command("dead", "list")).splitlines()
            assert [line.split()[1] for line in listed] == [f"{IDENTITY}.{n}" for n in (1, 2, 3)]
            assert first.startswith(f"one {IDENTITY}.1 team/tool push 1, ")
            assert first.endswith(", 1 attempt: status 404")
            assert "3 dead: `hgfleet webhooks dead list one`" in await command("status")
            assert await command("dead", "drop", "one", f"{IDENTITY}.2") == "one: 1 removed\n"
            assert "no dead delivery x" in await command("dead", "retry", "one", "x", code=2)
            assert "none of the receivers" in await command("dead", "retry", "three", code=2)
            assert await command("dead", "retry", "one") == "one: 2 tried again\n"
            await until("both again", lambda: servers[0].numbers == [1, 2, 3, 4, 1, 3])
            await until("none is dead", lambda: told() == [0, 0])
            await host.is_quiet()
        assert await command("dead", "list") == ""
        assert await command("status") == "one: nothing waits\ntwo: nothing waits\n"

    asyncio.run(story())


def test_an_event_is_given_up_after_its_time(host: Host, servers: list[Server]) -> None:
    host.seconds["retry_seconds"] = 0.0
    servers[0].statuses += [500]

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2)
            await until("the second", lambda: servers[0].numbers == [1, 2])
            await host.is_quiet()
            assert [letter.event.number for letter in await host.dead()] == [1]

    asyncio.run(story())


def test_a_daemon_and_its_disk_are_lost_and_another_host_goes_on(
    host: Host, servers: list[Server], tmp_path: Path
) -> None:
    """An event that was acknowledged to the broker stays done, and nothing else is missing."""
    servers[0].is_open.clear()
    paths = [f"team/{name}" for name in "abcdef"]

    async def story() -> None:
        await host.with_stream()
        with host.elsewhere() as process:
            await host.waits_for_consumers(2)
            for path in paths:
                await host.announce(1, 2, path=path)
            await until("the requests of one", lambda: len(servers[0].received) == 4)
            await until("all of the other", lambda: len(servers[1].received) == 12)
            process.kill()
            process.wait()
        shutil.rmtree(host.folder)
        host.folder = tmp_path / "hg2"
        host.folder.mkdir()
        servers[0].is_open.set()
        for path in paths:
            await host.announce(3, path=path)
        async with host.delivering():
            await host.is_quiet()

    asyncio.run(story())
    # Requests that were under way come again, and nothing else.
    assert len(servers[0].received) == 18 + 4
    assert len(servers[1].received) <= 18 + 4
    for server in servers:
        for path in paths:
            assert [*dict.fromkeys(server.of(path))] == [1, 2, 3], path
            assert server.of(path) == sorted(server.of(path)), path


def test_another_daemon_waits_for_what_the_killed_one_held(
    host: Host, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker sends the third before it knows that no daemon has the first and the second."""
    monkeypatch.setattr(Lines, "replies", lambda _lines: [])
    servers[0].is_open.clear()

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2)
            await until("a request", lambda: servers[0].numbers == [1])
            await until("the other", lambda: servers[1].numbers == [1, 2])
        monkeypatch.undo()
        monkeypatch.setattr(consumers, "ACK_SECONDS", 2.0)
        servers[0].is_open.set()
        await host.announce(3)
        async with host.delivering():
            await host.is_quiet()

    asyncio.run(story())
    assert servers[0].numbers == [1, 1, 2, 3]


def test_streams_that_were_made_anew_mix_up_no_events(host: Host, servers: list[Server]) -> None:
    """The broker lost its disk: the numbers of the stream begin again."""
    servers[0].is_open.clear()

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2)
            await until("a request", lambda: servers[0].numbers == [1])
            await until("the other", lambda: servers[1].numbers == [1, 2])
            host.broker.kill()
            await until("the loss is noticed", lambda: host.has_said("broker-away"))
            shutil.rmtree(host.broker.folder / "jetstream")
            await asyncio.to_thread(host.broker.start)
            await host.with_stream()
            await host.announce(3)
            servers[0].is_open.set()
            await until("the third", lambda: servers[0].numbers[-1:] == [3])
            servers[0].statuses.append(404)
            await host.announce(4)
            await until("all", lambda: servers[0].numbers[-1:] == [4])
            await until("all of the other", lambda: servers[1].numbers[-1:] == [4])
            await host.is_quiet()
            assert [letter.event.number for letter in await host.dead()] == [4]

    asyncio.run(story())
    assert [*dict.fromkeys(servers[0].numbers)] == [1, 2, 3, 4]
    assert servers[1].numbers == [1, 2, 3, 4]

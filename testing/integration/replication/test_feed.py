"""The feed of push events: a real broker, the server, and clients at its socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import nats
import pytest

from hgfleet.pushlog.record import Heads, Record
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.registry import Registry, Repository
from hgfleet.replication.events import feed, feed_server
from hgfleet.replication.events.feed_server import FeedServer
from hgfleet.replication.protocol import events, messages, streams
from testing.integration.replication.primary import Primary
from testing.integration.replication.relaying import end, identity, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from testing.integration.support.broker import Broker


class Client:
    """A client that reads events until the server ends the connection."""

    def __init__(self, host: Host, target: str, last: str, address: str) -> None:
        self.host = host
        fields = ["Host: hg", f"X-Real-IP: {address}"]
        fields += [f"Last-Event-ID: {last}"] if last else []
        self.request = "\r\n".join([f"GET {target} HTTP/1.1", *fields, "", ""]).encode()
        self.text = ""
        self.is_ended = False

    async def __aenter__(self) -> Client:
        reader, self.writer = await asyncio.open_unix_connection(self.host.socket)
        self.writer.write(self.request)
        self.task = asyncio.ensure_future(self._read(reader))
        await until("an answer", lambda: "\r\n\r\n" in self.text)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        self.writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                self.text += piece.decode()
        self.is_ended = True

    @property
    def status(self) -> int:
        return int(self.text.split()[1])

    @property
    def events(self) -> list[dict[str, str]]:
        """The events that are complete, each with its fields."""
        blocks = self.text.partition("\r\n\r\n")[2].split("\n\n")[:-1]
        parsed = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
        return [fields for fields in parsed if "event" in fields]

    @property
    def pushes(self) -> list[tuple[str, int]]:
        data = [json.loads(event["data"]) for event in self.events if event["event"] == "push"]
        return [(push["repository"], push["push"]) for push in data]


class Host(Primary):
    """A web host with the feed."""

    socket: Path

    def __init__(self, root: Path, broker: Broker) -> None:
        super().__init__(root, broker, ("hgweb1",))
        self.broker, self.socket = broker, root / "events.sock"
        self.said: list[str] = []
        self.readable("team/tool", "core")

    def readable(self, *public: str, private: str = "secret") -> None:
        """Register these public repositories, and a private repository."""
        made = [Repository(path, "", "public", (), True, ()) for path in public]
        made.append(Repository(private, "", ("core",), (), True, ()))
        self.register(Registry({repository.path: repository for repository in made}))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FeedServer]:
        client = await nats.connect(self.broker.url)
        await client.jetstream(timeout=30).add_stream(streams.expected(messages.EVENTS, 1))
        await client.close()
        self.said.clear()
        settings = replace(self.settings, host="hgweb1")
        server = FeedServer(settings, self.socket, lambda event, **_: self.said.append(event))
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(server.run())
        try:
            await until("the server", lambda: task.done() or server._loaded.is_set())
            yield server
        finally:
            await end(task, before)

    async def announce(self, *pushes: tuple[str, int], is_public: bool = True) -> None:
        """Publish events."""
        client = await nats.connect(self.broker.url)
        for path, number in pushes:
            record = Record(
                *(number, identity(path), "push", "alice", 1000 * number, "0" * 64),
                heads=Heads(digest="0" * 64),
            )
            await client.jetstream(timeout=30).publish(
                messages.events(record.repository),
                events.body(record, path, is_public=is_public),
                headers={messages.MESSAGE_ID_HEADER: f"{record.repository}.{number}"},
            )
        await client.close()

    def listen(self, query: str = "", last: str = "", address: str = "192.0.2.7") -> Any:
        return Client(self, f"/api/events{query}", last, address)


@pytest.fixture
def host(tmp_path: Path, broker: Broker) -> Host:
    return Host(tmp_path / "hgweb1", broker)


def test_clients_read_the_events_that_they_asked_for(host: Host) -> None:
    async def story() -> None:
        await_all = [("team/tool", 1), ("core", 1), ("team/tool", 2)]
        async with (
            host.serving(),
            host.listen() as everything,
            host.listen("?repository=core") as some,
        ):
            assert everything.status == 200
            assert "Content-Type: text/event-stream" in everything.text
            await host.announce(*await_all)
            await until("all events", lambda: everything.pushes == await_all)
            await until("the event of core", lambda: some.pushes == [("core", 1)])

    asyncio.run(story())


def test_a_client_that_returns_misses_nothing_also_from_another_host(host: Host) -> None:
    async def story() -> None:
        async with host.serving():
            await host.announce(("core", 1))
            async with host.listen() as client:
                await host.announce(("core", 2))
                await until("an event", lambda: client.pushes == [("core", 2)])
                last = client.events[-1]["id"]
        await host.announce(("core", 3), ("core", 4))
        async with host.serving():
            async with host.listen(last=last) as client:
                await until("the rest", lambda: client.pushes == [("core", 3), ("core", 4)])
            # An event that no stream has: the client looks into the push logs.
            async with host.listen(last="0123456789ab-7") as client:
                await until("a gap", lambda: [event["event"] for event in client.events] == ["gap"])
                await host.announce(("core", 5))
                await until("the next", lambda: client.pushes == [("core", 5)])

    asyncio.run(story())


def test_a_private_repository_has_no_events_here(host: Host) -> None:
    async def story() -> None:
        async with host.serving(), host.listen() as client:
            for path in ("secret", "missing"):
                async with host.listen(f"?repository={path}") as refused:
                    assert refused.status == 404
                    assert f"there is no repository '{path}' here" in refused.text
                    await until("the end", lambda listener=refused: listener.is_ended)
            await host.announce(("secret", 1), is_public=False)
            # Public when it was pushed to, and private now.
            await host.announce(("secret", 2))
            await host.announce(("core", 1))
            await until("the public one", lambda: client.pushes == [("core", 1)])
            async with host.listen(last=client.events[-1]["id"]) as again:
                host.readable("core", private="team/tool")
                await host.announce(("team/tool", 1), ("core", 2))
                await until("the public one", lambda: again.pushes == [("core", 2)])

    asyncio.run(story())


def test_a_quiet_feed_has_heartbeats_and_a_long_connection_ends(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_server, "HEARTBEAT_SECONDS", 0.05)

    async def story() -> None:
        async with host.serving(), host.listen() as client:
            await until("heartbeats", lambda: client.text.count(": alive") >= 2)
            monkeypatch.setattr(feed_server, "LIFE_SECONDS", 0.0)
            async with host.listen() as short:
                await until("its end", lambda: short.is_ended)
                assert short.status == 200

    asyncio.run(story())


def test_clients_that_leave_make_room_for_others(host: Host) -> None:
    async def story() -> None:
        async with host.serving() as server, contextlib.AsyncExitStack() as stack:
            for _ in range(feed.MOST_PER_ADDRESS):
                await stack.enter_async_context(host.listen())
            async with host.listen() as refused:
                assert refused.status == 429
            async with host.listen(address="192.0.2.8") as other:
                assert other.status == 200
            await stack.aclose()
            await until("they are gone", lambda: not len(server._listeners))
            async with host.listen() as client:
                assert client.status == 200

    asyncio.run(story())


def test_events_come_when_the_broker_returns_and_another_stream_is_a_new_beginning(
    host: Host,
) -> None:
    async def story() -> None:
        async with host.serving() as server, host.listen() as client:
            await host.announce(("core", 1))
            await until("an event", lambda: client.pushes == [("core", 1)])
            host.broker.kill()
            await until("the loss is noticed", lambda: "broker-away" in host.said)
            await asyncio.to_thread(host.broker.start)
            await host.announce(("core", 2))
            await until("the next", lambda: client.pushes == [("core", 1), ("core", 2)])
            before = server._newest.stream
            control = await nats.connect(host.broker.url)
            await control.jetstream(timeout=30).delete_stream(messages.EVENTS)
            await control.jetstream(timeout=30).add_stream(streams.expected(messages.EVENTS, 1))
            await control.close()
            host.broker.kill()
            await asyncio.to_thread(host.broker.start)
            await until("another stream", lambda: server._newest.stream != before)
            await until("the end", lambda: client.is_ended)
            async with host.listen(last=client.events[-1]["id"]) as again:
                await until("a gap", lambda: [event["event"] for event in again.events] == ["gap"])

    asyncio.run(story())


def test_the_readers_of_an_event_are_those_of_its_repository_and_not_of_its_path(
    host: Host,
) -> None:
    """It was public, is private at another path now, and a public repository has its path."""
    host.dynamic.parent.mkdir()
    with dynamic_update.update(host.dynamic) as change:
        change.note_identity("core", identity("core"))

    async def story() -> None:
        async with host.serving():
            async with host.listen() as client:
                await host.announce(("core", 1), ("core", 2))
                await until("events", lambda: client.pushes == [("core", 1), ("core", 2)])
                last = client.events[0]["id"]
            with dynamic_update.update(host.dynamic) as change:
                change.note_identity("core", "2f" * 16)
                change.note_identity("secret", identity("core"))
            await host.announce(("team/tool", 1))
            async with host.listen(last=last) as client:
                await until("an event", lambda: client.pushes)
                assert client.pushes == [("team/tool", 1)]
            # Its readers find it under its present path.
            host.readable("team/tool", "core", "secret", private="other")
            async with host.listen("?repository=secret", last=last) as client:
                await until("an event", lambda: client.pushes)
                assert client.pushes == [("core", 2)]

    asyncio.run(story())


@pytest.mark.parametrize("request_text", [b"\r\n\r\n", b"x" * 200_000, b"POST / HTTP/1.1\r\n\r\n"])
def test_nonsense_is_refused_and_the_feed_goes_on(host: Host, request_text: bytes) -> None:
    async def story() -> None:
        async with host.serving():
            reader, writer = await asyncio.open_unix_connection(str(host.socket))
            with contextlib.suppress(OSError):
                writer.write(request_text)
                await writer.drain()
                answer = await reader.read()
                assert not answer or answer.startswith(b"HTTP/1.1 4")
            writer.close()
            async with host.listen() as client:
                assert client.status == 200

    asyncio.run(story())

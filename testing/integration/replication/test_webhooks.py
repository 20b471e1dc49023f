"""Webhooks: a real broker, the daemon, and HTTP servers on this host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import nats
import pytest

from hgfleet import cli
from hgfleet.core.config import parse_table
from hgfleet.pushlog.record import Heads, Record
from hgfleet.replication import events, messages, streams
from hgfleet.replication.settings import Role
from hgfleet.replication.settings import Settings as Replication
from hgfleet.webhooks import attempts, request, settings
from hgfleet.webhooks import cli as webhooks_cli
from hgfleet.webhooks.daemon import Daemon
from hgfleet.webhooks.spool import Spool
from testing.integration.replication.relaying import SECONDS, end, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from testing.integration.support.broker import Broker

IDENTITY = "7d" * 16
SECRET = b"0123456789abcdef"


@dataclass
class Received:
    """A request that a server got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def number(self) -> int:
        number: int = json.loads(self.body)["push"]
        return number


@dataclass
class Server:
    """A receiver. It answers with each status of `statuses` once, and then with 204.

    While `is_open` is not set, it takes requests and answers none.
    """

    server: ThreadingHTTPServer
    received: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    is_open: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook?token=1"

    @property
    def numbers(self) -> list[int]:
        return [one.number for one in self.received]


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Two receivers."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_server()) for _ in range(2)]


@contextlib.contextmanager
def _server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.received.append(Received(self.path, dict(self.headers), body))
            status = made.statuses.pop(0) if made.statuses else 204
            made.is_open.wait(SECONDS)
            with contextlib.suppress(OSError):
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    made = Server(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    made.is_open.set()
    made.server.daemon_threads = True
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.is_open.set()
        made.server.shutdown()
        thread.join()
        made.server.server_close()


class Host:
    """A primary with the daemon of webhooks, whose receivers are named `one`, `two`..."""

    def __init__(self, folder: Path, broker: Broker, servers: list[Server]) -> None:
        self.folder, self.broker = folder, broker
        self.config = folder / "webhooks.toml"
        self.receivers: list[dict[str, Any]] = [
            {"name": name, "url": server.url}
            for name, server in zip(("one", "two"), servers, strict=True)
        ]
        self.seconds: dict[str, float] = {"retry_seconds": 3600.0, "timeout_seconds": 60.0}
        self.said: list[tuple[str, dict[str, object]]] = []

    def settings(self) -> settings.Settings:
        data = {"receivers": self.receivers, "spool": str(self.folder), **self.seconds}
        return parse_table(self.config, data, settings.parse)

    @contextlib.asynccontextmanager
    async def delivering(self) -> AsyncIterator[Spool]:
        """Run the daemon in this process."""
        replication = Replication(
            Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", (self.broker.url,), ()
        )
        spool = Spool(self.folder)
        secrets = {one["name"]: SECRET for one in self.receivers}
        self.said.clear()
        daemon = Daemon(
            *(self.settings(), replication, secrets, spool),
            lambda event, **fields: self.said.append((event, fields)),
        )
        await self.with_stream()
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(daemon.run())
        try:
            await until("the consumer", lambda: self.has_said("broker-connected") or task.done())
            yield spool
        finally:
            await end(task, before)
            spool.close()

    def has_said(self, event: str, count: int = 1) -> bool:
        return [one for one, _ in self.said].count(event) >= count

    async def with_stream(self) -> None:
        """Make the stream, as the relay does."""
        client = await nats.connect(self.broker.url)
        await client.jetstream(timeout=30).add_stream(streams.expected(messages.EVENTS, 1))
        await client.close()

    async def announce(
        self, *numbers: int, path: str = "team/tool", is_public: bool = True
    ) -> None:
        """Publish the events of these pushes."""
        client = await nats.connect(self.broker.url)
        identity = IDENTITY if path == "team/tool" else f"{sum(map(ord, path)):032x}"
        for number in numbers:
            record = Record(
                *(number, identity, "push", "alice", 1000 * number, "0" * 64),
                heads=Heads(digest="0" * 64),
            )
            await client.jetstream(timeout=30).publish(
                messages.events(identity),
                events.body(record, path, is_public=is_public),
                headers={messages.MESSAGE_ID: f"{identity}.{number}"},
            )
        await client.close()


@pytest.fixture
def host(
    tmp_path: Path, broker: Broker, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> Host:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.01)
    (tmp_path / "host").mkdir()
    return Host(tmp_path / "host", broker, servers)


def test_an_event_arrives_signed_at_the_receivers_that_take_it(
    host: Host, servers: list[Server]
) -> None:
    host.receivers[0]["private"] = True
    host.receivers[1]["repositories"] = ["team/*"]

    async def story() -> None:
        async with host.delivering() as spool:
            await host.announce(1)
            await host.announce(1, path="core", is_public=False)
            await host.announce(2)
            await until("two", lambda: len(servers[1].received) == 2)
            await until("three", lambda: len(servers[0].received) == 3)
            await until("the spool is empty", lambda: not spool.counts())

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
        async with host.delivering() as spool:
            await host.announce(1, 2, 3)
            await until("all", lambda: servers[0].numbers[-1:] == [3])
            await until("the spool is empty", lambda: not spool.counts())

    asyncio.run(story())
    assert servers[0].numbers == [1, 1, 1, 1, 1, 2, 3]
    # The redirect is not followed, and the name of a delivery stays.
    assert {one.path for one in servers[0].received} == {"/hook?token=1"}
    assert len({one.headers["X-Hgfleet-Delivery"] for one in servers[0].received}) == 3
    assert servers[1].numbers == [1, 2, 3]


def test_a_receiver_that_hangs_delays_no_other(host: Host, servers: list[Server]) -> None:
    servers[0].is_open.clear()

    async def story() -> None:
        async with host.delivering() as spool:
            for path in ("a", "b", "c", "d", "e", "f"):
                await host.announce(1, 2, path=path)
            await until("the other", lambda: len(servers[1].received) == 12)
            assert spool.counts()["one"].waiting == 12
            # One request for each repository, and a bounded number of them.
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
        async with host.delivering() as spool:
            await host.announce(1)
            await until("a request", lambda: servers[0].numbers == [1])
            await until("the other has it", lambda: spool.counts().keys() == {"one"})
        servers[0].is_open.set()
        await host.announce(2, 3)
        async with host.delivering() as spool:
            await until("all", lambda: servers[0].numbers[-1:] == [3])
            host.broker.kill()
            await until("the loss is noticed", lambda: host.has_said("broker-away"))
            await asyncio.to_thread(host.broker.start)
            await host.announce(4)
            await until("the fourth", lambda: servers[0].numbers[-1:] == [4])
            await until("the spool is empty", lambda: not spool.counts())

    asyncio.run(story())
    # The daemon ended before the answer to the first.
    assert servers[0].numbers == [1, 1, 2, 3, 4]
    assert servers[1].numbers == [1, 2, 3, 4]


def test_a_consumer_that_the_broker_lost_brings_no_event_twice(
    host: Host, servers: list[Server]
) -> None:
    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2)
            await until("both", lambda: servers[1].numbers == servers[0].numbers == [1, 2])
        client = await nats.connect(host.broker.url)
        await client.jetstream(timeout=30).delete_consumer(messages.EVENTS, "webhooks")
        await client.close()
        await host.announce(3)
        async with host.delivering() as spool:
            await until("the third", lambda: servers[0].numbers[-1:] == [3])
            await until("the spool is empty", lambda: not spool.counts())

    asyncio.run(story())
    assert servers[0].numbers == [1, 2, 3]


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
    host: Host,
    servers: list[Server],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The rights of the spool's owner would be those of this process for good.
    monkeypatch.setattr(webhooks_cli, "become", lambda _user: None)
    servers[0].statuses += [404, 410, 403]
    entries = "".join(
        f'[[receivers]]\nname = "{one["name"]}"\nurl = "{one["url"]}"\n' for one in host.receivers
    )
    host.config.write_text(f'spool = "{host.folder}"\n{entries}')

    def command(*words: str, code: int = 0) -> str:
        assert cli.main(["webhooks", "--config", str(host.config), *words]) == code
        said = capsys.readouterr()
        return said.out + said.err

    async def story() -> None:
        async with host.delivering() as spool:
            await host.announce(1, 2, 3, 4)
            await until("all", lambda: servers[0].numbers == [1, 2, 3, 4])
            await until("three are dead", lambda: len(spool.dead("one")) == 3)
            dead = [one["repository"] for event, one in host.said if event == "dead"]
            assert dead == ["team/tool"] * 3
            first, *_ = listed = command("dead", "list").splitlines()
            assert [line.split()[1] for line in listed] == [f"{IDENTITY}.{n}" for n in (1, 2, 3)]
            assert first.startswith(f"one {IDENTITY}.1 team/tool push 1, ")
            assert first.endswith(", 1 attempt: status 404")
            assert "3 dead: `hgfleet webhooks dead list one`" in command("status")
            assert command("dead", "drop", "one", f"{IDENTITY}.2") == "one: 1 removed\n"
            assert "no dead delivery x" in command("dead", "retry", "one", "x", code=2)
            assert "none of the receivers" in command("dead", "retry", "three", code=2)
            assert command("dead", "retry", "one") == "one: 2 tried again\n"
            await until("both again", lambda: servers[0].numbers == [1, 2, 3, 4, 1, 3])
            await until("the spool is empty", lambda: not spool.counts())
        assert command("dead", "list") == ""
        assert command("status") == "one: nothing waits\ntwo: nothing waits\n"

    asyncio.run(story())


def test_an_event_is_given_up_after_its_time(host: Host, servers: list[Server]) -> None:
    host.seconds["retry_seconds"] = 0.0
    servers[0].statuses += [500]

    async def story() -> None:
        async with host.delivering() as spool:
            await host.announce(1, 2)
            await until("the second", lambda: servers[0].numbers == [1, 2])
            await until("only the first is left", lambda: not spool.lines("one"))
            assert [one.event.number for one in spool.dead()] == [1]

    asyncio.run(story())


# One request.


async def answered(answer: bytes, *, seconds: float = 60.0, drips: bool = False) -> int:
    """Send a request to a server with this answer; return the status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(1)
            if not drips:
                writer.write(answer)
                await writer.drain()
            while drips:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tls = ssl.create_default_context()
    try:
        return await request.post(f"http://127.0.0.1:{port}/", {}, b"{}", seconds, tls)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 404\r\n\r\n", 404),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\n", 202),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 \r\n", 500),
    ],
)
def test_the_status_of_the_final_answer_counts(answer: bytes, expected: int) -> None:
    assert asyncio.run(answered(answer)) == expected


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "ended before an answer"),
        (b"HTTP/1.1 2", "ended before an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP"),
        (b"HTTP/1.1 abc\r\n", "no HTTP"),
        (b"H" * 1_000_000, "no HTTP|ended before an answer|reset"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "no final status"),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer: bytes, said: str) -> None:
    with pytest.raises(request.RequestError, match=said):
        asyncio.run(answered(answer))


def test_one_time_bounds_a_request_also_where_an_answer_drips() -> None:
    began = time.monotonic()
    with pytest.raises(request.RequestError, match=r"no answer within 0.5 s|no HTTP"):
        asyncio.run(answered(b"", seconds=0.5, drips=True))
    assert time.monotonic() - began < SECONDS

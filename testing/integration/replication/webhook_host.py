"""A primary with the daemon of webhooks, and receivers that are HTTP servers on this host."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import nats.errors
import nats.js.errors

from hgfleet import cli
from hgfleet.core.settings_file import parse_table
from hgfleet.pushlog.record import Heads, Record
from hgfleet.replication.protocol import events, messages, streams
from hgfleet.replication.protocol.connection import connect
from hgfleet.replication.protocol.settings import Role
from hgfleet.replication.protocol.settings import Settings as Replication
from hgfleet.webhooks import (
    consumers,
    former_spool,
    letters,
    settings,
)
from hgfleet.webhooks.daemon import Daemon
from hgfleet.webhooks.letters import Letter, Letters
from testing.integration.replication.relaying import SECONDS, end, until
from testing.support.pace import Deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from nats.js import JetStreamContext

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
        return [request.number for request in self.received]

    def of(self, path: str) -> list[int]:
        """Return the pushes of a repository."""
        bodies = [json.loads(request.body) for request in self.received]
        return [body["push"] for body in bodies if body["repository"] == path]


@contextlib.contextmanager
def serving() -> Iterator[Server]:
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


def identity_of(path: str) -> str:
    return IDENTITY if path == "team/tool" else f"{sum(map(ord, path)):032x}"


def event(number: int, path: str = "team/tool", *, is_public: bool = True) -> bytes:
    record = Record(
        *(number, identity_of(path), "push", "alice", 1000 * number, "0" * 64),
        heads=Heads(digest="0" * 64),
    )
    return events.body(record, path, is_public=is_public)


class Host:
    """A primary with the daemon of webhooks, whose receivers are named `one`, `two`..."""

    def __init__(self, folder: Path, broker: Broker, servers: list[Server]) -> None:
        self.folder, self.broker = folder, broker
        self.config = folder.parent / "webhooks.toml"
        self.receivers: list[dict[str, Any]] = [
            {"name": name, "url": server.url}
            for name, server in zip(("one", "two"), servers, strict=True)
        ]
        self.seconds: dict[str, float] = {"retry_seconds": 3600.0, "timeout_seconds": 60.0}
        self.replication = Replication(
            Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", (broker.url,), ()
        )
        self.secrets: dict[str, bytes] = {}
        self.said: list[tuple[str, dict[str, object]]] = []

    def settings(self) -> settings.Settings:
        folders = {"spool": str(self.folder), "state": str(self.folder)}
        data = {"receivers": self.receivers, **folders, **self.seconds}
        return parse_table(self.config, data, settings.parse)

    @contextlib.asynccontextmanager
    async def delivering(self) -> AsyncIterator[Daemon]:
        """Run the daemon in this process."""
        secrets = {
            receiver["name"]: self.secrets.get(receiver["name"], SECRET)
            for receiver in self.receivers
        }
        self.said.clear()
        daemon = Daemon(
            *(self.settings(), self.replication, secrets),
            lambda event, **fields: self.said.append((event, fields)),
            list(former_spool.read(self.folder)),
        )
        await self.with_stream()
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(daemon.run())
        try:
            await until("the consumer", lambda: self.has_said("broker-connected") or task.done())
            yield daemon
        finally:
            await end(task, before)

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[JetStreamContext]:
        """Ask the broker."""
        client = await connect(self.replication, "test")
        try:
            yield client.jetstream(timeout=30)
        finally:
            await client.close()

    def configured(self) -> list[str]:
        """Write the files of settings; return the options that name them."""
        text = f'state = "{self.folder}"\nspool = "{self.folder}"\n'
        for receiver in self.receivers:
            values = "".join(f"{name} = {json.dumps(value)}\n" for name, value in receiver.items())
            text += f"[[receivers]]\n{values}"
        self.config.write_text(text)
        replication = self.config.with_name("replication.toml")
        replication.write_text(
            'role = "primary"\nhost = "hg1"\nprimary = "hg1"\nsource = "https://hg1:7460"\n'
            f'brokers = ["{self.broker.url}"]\nmirrors = ["hgweb1"]\n'
        )
        return ["webhooks", "--config", str(self.config), "--replication", str(replication)]

    async def command(self, *words: str, code: int = 0) -> str:
        """Run a command of this host; return its output."""
        said = io.StringIO()

        def run() -> int:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                return cli.main([*self.configured(), *words])

        # A command has an event loop of its own.
        assert await asyncio.to_thread(run) == code, said.getvalue()
        return said.getvalue()

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the daemon in a process that can be killed."""
        options = [*self.configured(), "run"]
        for receiver in self.receivers:
            (self.folder / receiver["name"]).write_bytes(SECRET)
        program = (
            "import sys; from hgfleet import cli; from hgfleet.webhooks import consumers; "
            "consumers.ACK_SECONDS = 2.0; sys.exit(cli.main(sys.argv[1:]))"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, *options],
            env={**os.environ, "CREDENTIALS_DIRECTORY": str(self.folder)},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    async def waits_for_consumers(self, count: int) -> None:
        deadline = Deadline(SECONDS)
        while len(await self.consumers()) < count:
            assert not deadline.is_over()
            await asyncio.sleep(0.02)

    async def dead(self, receiver: str = "") -> list[Letter]:
        async with self.asking() as api:
            stored = Letters(api).read(letters.DEAD)
            return [letter async for letter in stored if receiver in ("", letter.receiver)]

    async def consumers(self) -> dict[str, int]:
        """Return the number of events that wait at the broker, by the names of the receivers."""
        client = await connect(self.replication, "test")
        there = await consumers.receivers(client)
        await client.close()
        return {
            receiver.name: (info.num_pending or 0) + (info.num_ack_pending or 0)
            for receiver, info in there.items()
        }

    async def is_quiet(self) -> None:
        """Wait until nothing waits at the broker."""
        deadline = Deadline(SECONDS)
        while any((waiting := await self.consumers()).values()):
            assert not deadline.is_over(), waiting
            await asyncio.sleep(0.02)

    def has_said(self, event: str, count: int = 1) -> bool:
        return [name for name, _ in self.said].count(event) >= count

    async def with_stream(self) -> None:
        """Make the stream, as the relay does.

        Brokers that elect their leader answer no request, also later: it is sent again.
        """
        client = await connect(self.replication, "test")
        wanted = streams.expected(messages.EVENTS, self.replication.replicas)
        deadline = Deadline(SECONDS)
        while True:
            try:
                await client.jetstream(timeout=5).add_stream(wanted)
                break
            except nats.errors.TimeoutError:
                assert not deadline.is_over(), "the brokers make no stream"
        await client.close()

    async def announce(
        self, *numbers: int, path: str = "team/tool", is_public: bool = True
    ) -> None:
        """Publish the events of these pushes."""
        identity = identity_of(path)
        for number in numbers:
            deadline = Deadline(SECONDS)
            while not await self._is_published(
                messages.events(identity),
                event(number, path, is_public=is_public),
                {messages.MESSAGE_ID_HEADER: f"{identity}.{number}"},
            ):
                assert not deadline.is_over()

    async def _is_published(self, subject: str, body: bytes, headers: dict[str, str]) -> bool:
        """Publish an event once; return False while the brokers elect a leader."""
        async with self.asking() as api:
            try:
                await api.publish(subject, body, timeout=5, headers=headers)
            except (nats.js.errors.NoStreamResponseError, nats.errors.TimeoutError):
                return False
        return True

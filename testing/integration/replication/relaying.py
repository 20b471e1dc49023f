"""A relay in the process of a test, sessions that wake it, and mirrors that answer it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import nats

from hgfleet.hg import wake
from hgfleet.pushlog.record import hash_of
from hgfleet.replication.primary.relay import Relay
from hgfleet.replication.promotion import former_terms
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import Applied, Lease
from testing.support.pace import Deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hgfleet.pushlog.record import Record
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker

SECONDS = 60.0
"""For a state to come about on a machine under load."""


async def until(what: str, probe: Callable[[], Any], seconds: float = SECONDS) -> Any:
    deadline = Deadline(seconds)
    while not (value := probe()):
        assert not deadline.is_over(), f"{what}: not within {deadline}"
        await asyncio.sleep(0.02)
    return value


async def end(task: asyncio.Task[None], before: set[asyncio.Task[Any]]) -> None:
    """Cancel a task and wait for its end; `before` are the tasks that are older. Raises its error.

    Until Python 3.11 `asyncio.wait_for`, which nats-py uses, may swallow a cancellation, and a
    group of tasks does not cancel its tasks again: all younger tasks are cancelled. Hosts have
    3.13.
    """
    deadline = Deadline(SECONDS)
    task.cancel()
    while not (await asyncio.wait({task}, timeout=SECONDS / 12))[0]:
        assert not deadline.is_over(), f"it does not end: {task}"
        for younger in asyncio.all_tasks() - before:
            younger.cancel()
    if not task.cancelled():
        task.result()


@contextlib.asynccontextmanager
async def relaying(
    primary: Primary, *, connected: bool = True, **options: Any
) -> AsyncIterator[Relay]:
    """Run a relay in this process; its events are in `relay.said`."""
    said: list[tuple[str, dict[str, object]]] = []
    options.setdefault("scan_seconds", 3600.0)
    options.setdefault("settle_seconds", 0.0)
    options.setdefault("name_former", former_terms.settle)
    relay = Relay(primary.settings, lambda event, **fields: said.append((event, fields)), **options)
    relay.said = said  # type: ignore[attr-defined]
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(relay.run())
    try:
        await until("the relay starts", lambda: "started" in events(relay) or task.done())
        if connected:
            await until("the broker", relay.broker.ready.is_set)
        yield relay
    finally:
        await end(task, before)


def events(relay: Relay) -> list[str]:
    return [event for event, _ in relay.said]  # type: ignore[attr-defined]


async def pushed(
    primary: Primary, path: str, record: Record, wait: float = 60.0, session: str = ""
) -> str:
    """Wake the relay as the session of a push does; return the line that the pusher reads."""
    hashed = hash_of(record.line())
    request = wake.push_request(path, record.repository, record.id, hashed, session)
    answer = await asyncio.to_thread(wake.ask, str(primary.settings.wake), request, wait)
    return wake.sentence(record.id, answer, wait)


class Mirror:
    """A mirror that shows each push, unless it is slow, and tells so, unless it is silent."""

    def __init__(self, name: str, broker: Broker) -> None:
        self.name, self.broker = name, broker
        self.is_slow = False
        self.is_silent = False
        self.shown: dict[str, tuple[int, str]] = {}
        self.asked: set[str] = set()
        self.confirmed: list[messages.Confirmed] = []
        self.caught_up = True

    async def __aenter__(self) -> Mirror:
        self.client = await nats.connect(self.broker.url)
        await self.client.subscribe(messages.confirmed(self.name), cb=self._on_confirmed)
        await self.client.subscribe(messages.asked(self.name), cb=self._on_asked)
        await self.client.subscribe("hgfleet.pushes.*", cb=self._on_push)
        await self.client.subscribe("hgfleet.documents.*", cb=self._on_hint)
        # The broker has them all before anything is published: it keeps nothing for later.
        await self.client.flush()
        self.task = asyncio.ensure_future(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await self.client.close()

    async def _beat(self) -> None:
        while True:
            lease = Lease(self.name, "boot", self.caught_up, 0, 0, time.time())
            await self.client.publish(messages.leases(self.name), lease.body())
            await asyncio.sleep(0.1)

    async def _on_confirmed(self, message: Any) -> None:
        self.confirmed.append(messages.decode_confirmed(message.data))

    async def _on_push(self, message: Any) -> None:
        push = messages.decode_push(message.headers, message.data)
        record = push.record
        if not self.is_slow:
            self.shown[record.repository] = record.id, push.hash
            if not self.is_silent:
                await self._tell(record.repository)

    async def _on_hint(self, message: Any) -> None:
        if not self.is_slow:
            hint = messages.decode_hint(message.data)
            name = bytes.fromhex(message.subject.rpartition(".")[2]).decode()
            brought = messages.Brought(self.name, name, hint.boot, hint.number)
            await self.client.publish(messages.applied(self.name), brought.body())

    async def _on_asked(self, message: Any) -> None:
        for repository in messages.decode_asked(message.data).repositories:
            if repository in self.shown:
                self.asked.add(repository)
                await self._tell(repository)

    async def _tell(self, repository: str) -> None:
        applied = Applied(self.name, repository, *self.shown[repository])
        subject = messages.applied(self.name)
        await self.client.publish(subject, applied.body(), headers=applied.headers() or None)


def identity(path: str) -> str:
    return f"{sum(map(ord, path)):032x}"


async def stream_of(
    broker: Broker, stream: str = messages.PUSHES
) -> list[tuple[dict[str, str], bytes]]:
    """Return the headers and bodies of all messages of a stream."""
    client = await nats.connect(broker.url)
    try:
        api = client.jetstream(timeout=30)
        state = (await api.stream_info(stream)).state
        stored: list[tuple[dict[str, str], bytes]] = []
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            message = await api.get_msg(stream, sequence)
            stored.append((dict(message.headers or {}), message.data or b""))
        return stored
    finally:
        await client.close()


def ids(stored: list[tuple[dict[str, str], bytes]]) -> list[str]:
    """Return the pushes of messages: identity and number, and any epoch but the first."""
    return [push_of(headers) for headers, _ in stored]


def push_of(headers: dict[str, str]) -> str:
    named = messages.named(headers)
    assert named is not None, headers
    name, number, epoch = named
    return messages.push_name(name, number) + (f".{epoch}" if epoch != 1 else "")

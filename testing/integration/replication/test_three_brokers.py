"""Three brokers, as the role `replication` configures them, each with a copy of every stream."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from hgfleet.replication.protocol import messages, streams
from hgfleet.replication.protocol.connection import FAILURES, connect
from testing.integration.replication.primary import Primary
from testing.integration.replication.relaying import SECONDS, events, relaying, until
from testing.integration.replication.secured import (
    CLIENTS_PORT,
    MIRRORS,
    PRIMARY,
    ROUTES_PORT,
    Authority,
    configuration,
)
from testing.integration.support.broker import Broker, free_port
from testing.support.pace import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig

    from testing.integration.replication.webhook_host import Host, Server

NAMES: Final = ("broker1.example.org", "broker2.example.org", "broker3.example.org")
REFUSED_ROUTE: Final = "Router connection closed: Authentication Failure"
"""A line of a broker's log."""


def member(folder: Path, name: str, tls: Path, routes: Sequence[int]) -> Broker:
    """Return a broker of the three, whose host names lead to ports of this machine."""
    text = configuration(tls, name, NAMES)
    made = Broker(folder / name, "", scheme="tls")
    text = text.replace(f"{name}:{CLIENTS_PORT}", f"localhost:{made.port}")
    for broker_name, port in zip(NAMES, routes, strict=True):
        text = text.replace(f"{broker_name}:{ROUTES_PORT}", f"localhost:{port}")
    own = routes[NAMES.index(name)]
    made.more = text.replace(f"0.0.0.0:{ROUTES_PORT}", f"127.0.0.1:{own}")
    return made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The site's CA, with certificates of the brokers and of the primary."""
    made = Authority(tmp_path / "tls")
    made.sign("broker", "cert", "DNS:localhost,IP:127.0.0.1", "key")
    made.sign(PRIMARY, "primary")
    return made


@pytest.fixture
def routes() -> list[int]:
    """The ports between the brokers."""
    return [free_port() for _ in NAMES]


@pytest.fixture
def brokers(tmp_path: Path, authority: Authority, routes: list[int]) -> Iterator[list[Broker]]:
    """Three brokers that run."""
    made = [member(tmp_path, name, authority.folder, routes) for name in NAMES]
    try:
        for broker in made:
            broker.start()
        yield made
    finally:
        for broker in made:
            broker.kill()


@pytest.fixture
def primary(tmp_path: Path, authority: Authority, brokers: list[Broker]) -> Primary:
    """A primary that knows the three."""
    made = Primary(tmp_path / "hg1", brokers[0], MIRRORS)
    made.add("team/tool")
    made.settings = replace(
        made.settings,
        host=PRIMARY,
        primary=PRIMARY,
        brokers=tuple(broker.url for broker in brokers),
        replicas=3,
        certificate=authority.folder / "primary.pem",
        key=authority.folder / "primary-key.pem",
        ca=authority.folder / "ca.pem",
    )
    return made


async def stream(primary: Primary) -> Any:
    """Return the state of the stream of pushes at a broker."""
    client = await connect(primary.settings, "test")
    try:
        return await client.jetstream(timeout=SECONDS).stream_info(messages.PUSHES)
    finally:
        await client.close()


async def settled(primary: Primary) -> None:
    """Wait until every broker has all of the stream."""
    deadline = Deadline(SECONDS)
    while True:
        with contextlib.suppress(*FAILURES):
            cluster = (await stream(primary)).cluster
            if cluster.leader and all(
                replica.current and not replica.offline for replica in cluster.replicas
            ):
                return
        assert not deadline.is_over(), f"no copies on all brokers within {deadline}"
        await asyncio.sleep(0.1)


def test_pushes_go_on_without_the_broker_that_leads_the_others(
    primary: Primary, brokers: list[Broker]
) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:

            async def published(count: int) -> None:
                primary.push("team/tool")
                await until(f"{count} messages", lambda: events(relay).count("published") >= count)

            await published(1)
            info = await stream(primary)
            assert (info.config.num_replicas, len(info.cluster.replicas)) == (3, 2)
            leader = brokers[NAMES.index(info.cluster.leader)]
            leader.kill()
            await published(2)
            leader.start()
            await settled(primary)
            assert (await stream(primary)).state.messages == 2

    asyncio.run(story())


def test_webhooks_go_on_without_the_broker_that_leads_the_others(
    primary: Primary, brokers: list[Broker], host: Host, servers: list[Server]
) -> None:
    """Events that a receiver holds or has received are known to the other two."""
    host.replication = primary.settings
    servers[0].is_open.clear()

    async def story() -> None:
        async with host.delivering():
            await host.announce(1, 2)
            await until("a request", lambda: servers[0].numbers == [1])
            await until("the other", lambda: servers[1].numbers == [1, 2])
            async with host.asking() as api:
                info = await api.stream_info(messages.EVENTS)
            leader = brokers[NAMES.index(info.cluster.leader)]
            leader.kill()
            await host.announce(3)
            servers[0].is_open.set()
            await until("the third", lambda: servers[0].numbers[-1:] == [3])
            await until("the third of the other", lambda: servers[1].numbers[-1:] == [3])
            await host.is_quiet()
            leader.start()

    asyncio.run(story())
    # The first was on its way when the connection ended.
    assert servers[0].numbers in ([1, 2, 3], [1, 1, 2, 3])
    assert servers[1].numbers == [1, 2, 3]


def test_a_certificate_of_another_host_opens_no_route(
    tmp_path: Path, authority: Authority, brokers: list[Broker], routes: list[int]
) -> None:
    folder = tmp_path / "stranger"
    folder.mkdir()
    authority.sign(MIRRORS[0], "stranger", f"DNS:{MIRRORS[0]}")
    for source, name in (("stranger", "cert"), ("stranger-key", "key"), ("ca", "ca")):
        shutil.copy(authority.folder / f"{source}.pem", folder / f"{name}.pem")
    known = brokers[1].log.read_text().count(REFUSED_ROUTE)

    made = member(folder, NAMES[0], folder, [free_port(), *routes[1:]])
    made.start()
    try:
        asyncio.run(
            until("a refusal", lambda: brokers[1].log.read_text().count(REFUSED_ROUTE) > known)
        )
    finally:
        made.kill()


def test_streams_of_the_release_before_get_their_bounds(
    primary: Primary, brokers: list[Broker]
) -> None:
    """The bounds of all streams, with their copies, fit the disk of each broker."""
    disk = 128 * 2**20
    for broker in brokers:
        broker.kill()
        store = broker.folder / "jetstream"
        broker.more += f'\njetstream {{ store_dir: "{store}", max_file_store: {disk} }}\n'
    for broker in brokers:
        broker.start()
    primary.settings = replace(primary.settings, objects_bytes=disk // 4)

    async def story() -> None:
        client = await connect(primary.settings, "test")
        api = client.jetstream(timeout=SECONDS)
        for name in streams.SUBJECTS:
            await made(api, streams.expected(name, 3))
        async with relaying(primary) as relay:
            await until("the streams", lambda: not relay.state()["broker"]["warnings"])
            assert relay.broker.has_objects
            for name in streams.SUBJECTS:
                config = (await api.stream_info(name)).config
                assert config.max_bytes == streams.bound(name, disk // 4)
        await client.close()

    asyncio.run(story())


async def made(api: JetStreamContext, wanted: StreamConfig) -> None:
    """Make a stream, once the brokers have a leader."""
    deadline = Deadline(SECONDS)
    while True:
        try:
            await api.add_stream(wanted)
        except FAILURES:
            assert not deadline.is_over(), "the brokers make no stream"
            await asyncio.sleep(0.2)
        else:
            return

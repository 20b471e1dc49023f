"""Permissions of each host in the broker's configuration, as the role `replication` writes it."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.events.feed_server import FeedServer
from hgfleet.replication.protocol import events, messages, push_objects
from hgfleet.replication.protocol import streams as streams_of_service
from hgfleet.replication.protocol.pulling import messages_of
from hgfleet.replication.protocol.settings import Role, Settings
from hgfleet.webhooks import consumers, letters, receiver_identities
from hgfleet.webhooks.letters import Letter, Letters
from testing.integration.replication.secured import (
    BROKER,
    MIRRORS,
    PRIMARY,
    Authority,
    configuration,
)
from testing.integration.support.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from nats.aio.client import Client

SUBJECTS: Final = {
    messages.PUSHES: "hgfleet.pushes.*",
    messages.DOCUMENTS: "hgfleet.documents.*",
    messages.EVENTS: "hgfleet.events.*",
}
ANSWER: Final = 30.0
"""Bound of a wait for an answer that comes (seconds), also on a machine under load."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "tls")


@pytest.fixture
def secured(tmp_path: Path, authority: Authority) -> Iterator[Broker]:
    authority.sign(BROKER, "cert", f"DNS:{BROKER},IP:127.0.0.1", "key")
    made = Broker(tmp_path / "secured", configuration(authority.folder), scheme="tls")
    made.start()
    try:
        yield made
    finally:
        made.kill()


class Host:
    """A host that is connected; `refused` has the errors of the broker."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.client: Client

    async def may_publish(self, subject: str) -> bool:
        """Tell whether a message on a subject is accepted."""
        mark = f"violation for publish to {subject!r}".replace("'", '"').lower()
        await self.client.publish(subject, b"x")
        return await self._is_accepted(mark)

    async def may_subscribe(self, subject: str) -> bool:
        """Tell whether messages of a subject would be delivered."""
        mark = f"violation for subscription to {subject!r}".replace("'", '"').lower()
        await self.client.subscribe(subject)
        return await self._is_accepted(mark)

    async def _is_accepted(self, mark: str) -> bool:
        await self.is_heard()
        return not any(mark in refusal for refusal in self.refused)

    async def is_heard(self) -> None:
        """Wait until the broker has taken all that was sent, subscriptions too.

        It works in order, so a refusal comes before this answer. The answer to the client's flush
        would not do: a flush overtakes the messages before it.
        """
        await self.client.request("$JS.API.INFO", timeout=ANSWER)


async def connected(broker: Broker, context: ssl.SSLContext) -> Host:
    host = Host()

    async def note(error: Exception) -> None:
        host.refused.append(str(error).lower())

    host.client = await nats.connect(
        broker.url, tls=context, error_cb=note, allow_reconnect=False, connect_timeout=int(ANSWER)
    )
    return host


async def streams(primary: Host) -> None:
    for name, subject in SUBJECTS.items():
        await primary.client.jetstream().add_stream(StreamConfig(name=name, subjects=[subject]))


def told(
    broker: Broker, authority: Authority, story: Callable[[Host, Host], Awaitable[None]]
) -> None:
    """Have the primary and a mirror connect, with streams made, and run a story."""

    async def run() -> None:
        primary = await connected(broker, authority.sign(PRIMARY, "primary"))
        mirror = await connected(broker, authority.sign(MIRRORS[0], "mirror"))
        await streams(primary)
        await story(primary, mirror)
        await primary.client.close()
        await mirror.client.close()

    asyncio.run(run())


def test_the_primary_publishes_and_a_mirror_reads_through_its_own_consumer(
    secured: Broker, authority: Authority
) -> None:
    async def story(primary: Host, mirror: Host) -> None:
        identity = uuid.uuid4().hex
        headers = {messages.MESSAGE_ID_HEADER: f"{identity}.1"}
        stream = primary.client.jetstream()
        for _ in range(2):
            await stream.publish(messages.pushes(identity), b"push", headers=headers)
        name = messages.token(MIRRORS[0])
        for subject, wanted in ((messages.PUSHES, b"push"),):
            consumer = ConsumerConfig(durable_name=name, filter_subject=SUBJECTS[subject])
            await mirror.client.jetstream().add_consumer(subject, consumer)
            source = await mirror.client.jetstream().pull_subscribe_bind(name, subject)
            (message,) = await source.fetch(1, timeout=ANSWER)
            assert message.data == wanted
            await message.ack_sync(timeout=int(ANSWER))
        info = await stream.stream_info(messages.PUSHES)
        assert info.state.messages == 1
        assert not primary.refused
        assert not mirror.refused

    told(secured, authority, story)


def test_webhooks_of_the_primary_deliver_through_consumers_and_letters_of_receivers(
    secured: Broker, authority: Authority
) -> None:
    ci = receiver_identities.known("0" * 16, "ci", "https://ci.example.org/", b"secret")
    letter = Letter(ci.identity, "ci", events.Event("team/tool", "7d" * 16, 1, True, b"{}"), 0.0)

    async def story(primary: Host, mirror: Host) -> None:
        api = primary.client.jetstream()
        await api.publish(messages.events("7d" * 16), b"event")
        await consumers.ensure(api, ci, 1)
        assert [*await consumers.receivers(primary.client)] == [ci]
        async for message in messages_of(primary.client, messages.EVENTS, ci.consumer):
            assert message.data == b"event"
            await message.ack_sync(timeout=int(ANSWER))
            break
        await consumers.ensure(api, replace(ci, name="renamed"))
        await consumers.remove(api, ci.consumer)
        stored = Letters(api)
        await stored.ensure(1, 2**28)
        await stored.add(letters.AGAIN, letter)
        await stored.forget(ci.identity)
        await stored.add(letters.DEAD, letter)
        await stored.remove(2)
        assert [remaining async for remaining in stored.read(letters.DEAD)] == []
        assert await primary.may_subscribe(letters.subject(letters.AGAIN))
        assert not primary.refused
        for subject in (
            f"$JS.API.CONSUMER.CREATE.{messages.PUSHES}.{ci.consumer}",
            f"$JS.API.STREAM.DELETE.{letters.STREAM}",
        ):
            assert not await primary.may_publish(subject), subject
        for subject in (
            f"$JS.API.CONSUMER.CREATE.{messages.EVENTS}.{ci.consumer}",
            f"$JS.API.CONSUMER.DELETE.{messages.EVENTS}.{ci.consumer}",
            f"$JS.API.CONSUMER.MSG.NEXT.{messages.EVENTS}.{ci.consumer}",
            f"$JS.ACK.{messages.EVENTS}.{ci.consumer}.1.1.1.1.0",
            f"$JS.API.STREAM.MSG.GET.{letters.STREAM}",
            letters.subject(letters.DEAD, ci.identity),
        ):
            assert not await mirror.may_publish(subject), subject
        assert not await mirror.may_subscribe(letters.subject(letters.AGAIN))

    told(secured, authority, story)


def test_the_primary_keeps_large_pushes_and_a_mirror_reads_them_only(
    secured: Broker, authority: Authority, tmp_path: Path
) -> None:
    record = Record(
        1, "7d" * 16, "push", "alice", time=1, previous=FIRST, heads=Heads(digest="0" * 64)
    )
    line = record.line()
    name = messages.message_id(record, hash_of(line))
    settings = Settings(
        *(Role.MIRROR, MIRRORS[0], PRIMARY, f"https://{PRIMARY}:7460", (secured.url,), MIRRORS),
        ca=authority.folder / "ca.pem",
        certificate=authority.folder / "mirror.pem",
        key=authority.folder / "mirror-key.pem",
    )

    def read() -> bytes:
        with push_objects.fetched(settings, line, record) as file:
            return file.read()

    async def story(primary: Host, mirror: Host) -> None:
        api = primary.client.jetstream()
        wanted = push_objects.expected(1, 2**20, streams_of_service.MAX_AGE)
        for config in (wanted, wanted.evolve(max_bytes=2**21)):
            await streams_of_service.ensured(api, config, lambda *_, **__: None)
        file = tmp_path / "object"
        file.write_bytes(line + b"\nchangegroup")
        with file.open("rb") as content:
            await push_objects.put(api, name, content)
        assert await asyncio.to_thread(read) == b"changegroup"
        assert await push_objects.withdraw(api, {"7d" * 16}) == [name]
        assert not await push_objects.has(api, name)
        assert not primary.refused
        assert not await primary.may_publish(f"$JS.API.STREAM.DELETE.{push_objects.STREAM}")
        for subject in (
            f"$O.{push_objects.BUCKET}.M.{'7d' * 16}",
            f"$O.{push_objects.BUCKET}.C.{'7d' * 16}",
            f"$JS.API.STREAM.PURGE.{push_objects.STREAM}",
            f"$JS.API.CONSUMER.CREATE.{push_objects.STREAM}",
        ):
            assert not await mirror.may_publish(subject), subject

    told(secured, authority, story)


def test_a_primary_that_was_a_mirror_fetches_what_is_on_its_way(
    secured: Broker, authority: Authority
) -> None:
    async def story(primary: Host, mirror: Host) -> None:
        name = messages.token(PRIMARY)
        for subject in (
            f"$JS.API.CONSUMER.MSG.NEXT.{messages.PUSHES}.{name}",
            f"$JS.ACK.{messages.PUSHES}.{name}.1.1.1.1.0",
            messages.leases(PRIMARY),
            messages.EPOCH,
        ):
            assert await primary.may_publish(subject), subject
        assert await primary.may_subscribe(f"hgfleet.confirmed.{name}")
        assert not await mirror.may_publish(messages.EPOCH)
        assert await mirror.may_subscribe(messages.EPOCH)
        assert await mirror.may_publish(f"$JS.API.STREAM.MSG.GET.{messages.EPOCHS}")

    told(secured, authority, story)


@pytest.mark.parametrize("name", [PRIMARY, MIRRORS[0]])
def test_the_feed_of_each_web_host_reads_events(
    secured: Broker, authority: Authority, name: str
) -> None:
    async def run() -> None:
        primary = await connected(secured, authority.sign(PRIMARY, "primary"))
        await streams(primary)
        await primary.client.jetstream().publish(messages.events("7d" * 16), b"event")
        host = await connected(secured, authority.sign(name, "host"))
        server = FeedServer(
            Settings(Role.MIRROR, name, PRIMARY, "https://x", (), MIRRORS),
            Path("/nonexistent"),
            print,
        )
        # An earlier connection left its consumer.
        for _ in range(2):
            assert await server._begin(host.client) == 1
        async for message in messages_of(host.client, messages.EVENTS, messages.token(name)):
            assert (message.data, message.metadata.sequence.stream) == (b"event", 1)
            break
        assert not host.refused
        for peer in (primary, host):
            await peer.client.close()

    asyncio.run(run())


def test_a_mirror_tells_how_far_it_is_and_hears_that_its_lease_is_confirmed(
    secured: Broker, authority: Authority
) -> None:
    async def story(primary: Host, mirror: Host) -> None:
        name = messages.token(MIRRORS[0])
        for subject in (messages.leases(MIRRORS[0]), messages.applied(MIRRORS[0])):
            heard = await primary.client.subscribe(subject.replace(name, "*"))
            await primary.is_heard()
            assert await mirror.may_publish(subject)
            assert (await heard.next_msg(timeout=ANSWER)).subject == subject
        confirmed = await mirror.client.subscribe(f"hgfleet.confirmed.{name}")
        await mirror.is_heard()
        assert await primary.may_publish(f"hgfleet.confirmed.{name}")
        assert (await confirmed.next_msg(timeout=ANSWER)).data == b"x"
        asked = await mirror.client.subscribe(messages.asked(MIRRORS[0]))
        await mirror.is_heard()
        assert await primary.may_publish(messages.asked(MIRRORS[0]))
        assert (await asked.next_msg(timeout=ANSWER)).data == b"x"

    told(secured, authority, story)


def test_a_mirror_can_neither_push_nor_speak_for_another(
    secured: Broker, authority: Authority
) -> None:
    other = messages.token(MIRRORS[1])

    async def story(primary: Host, mirror: Host) -> None:
        for subject in (
            messages.pushes("0" * 32),
            messages.documents("registry.json"),
            messages.events("0" * 32),
            messages.leases(MIRRORS[1]),
            messages.applied(MIRRORS[1]),
            f"hgfleet.confirmed.{other}",
            messages.asked(MIRRORS[1]),
            "_INBOX.another",
            f"$JS.API.STREAM.DELETE.{messages.PUSHES}",
            f"$JS.API.STREAM.PURGE.{messages.PUSHES}",
            f"$JS.API.STREAM.UPDATE.{messages.PUSHES}",
            f"$JS.API.CONSUMER.DELETE.{messages.PUSHES}.{other}",
            f"$JS.API.CONSUMER.MSG.NEXT.{messages.PUSHES}.{other}",
            f"$JS.ACK.{messages.PUSHES}.{other}.1.1.1.1.0",
        ):
            assert not await mirror.may_publish(subject), subject
        for subject in (
            *("hgfleet.>", f"hgfleet.confirmed.{other}", messages.asked(MIRRORS[1])),
            *("$JS.>", ">", "hgfleet.events.>"),
        ):
            assert not await mirror.may_subscribe(subject), subject
        info = await primary.client.jetstream().stream_info(messages.PUSHES)
        assert info.state.messages == 0

    told(secured, authority, story)


def test_the_primary_cannot_delete_what_mirrors_still_need(
    secured: Broker, authority: Authority
) -> None:
    async def story(primary: Host, mirror: Host) -> None:
        del mirror
        for subject in (
            f"$JS.API.STREAM.DELETE.{messages.PUSHES}",
            f"$JS.API.STREAM.PURGE.{messages.PUSHES}",
            messages.leases(MIRRORS[0]),
        ):
            assert not await primary.may_publish(subject), subject

    told(secured, authority, story)


@pytest.mark.parametrize("name", ["web3.example.org", "localhost", "broker1.example.org"])
def test_a_certificate_of_the_site_that_is_no_user_is_refused(
    secured: Broker, authority: Authority, name: str
) -> None:
    context = authority.sign(name, "stranger")
    with pytest.raises((nats.errors.Error, OSError)):
        asyncio.run(connected(secured, context))


def test_a_client_without_a_certificate_is_refused(secured: Broker, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.pem"))
    with pytest.raises((nats.errors.Error, OSError)):
        asyncio.run(connected(secured, context))


def test_a_certificate_of_another_ca_is_refused(
    secured: Broker, authority: Authority, tmp_path: Path
) -> None:
    context: Any = Authority(tmp_path / "other").sign(PRIMARY, "primary")
    context.load_verify_locations(cafile=str(authority.folder / "ca.pem"))
    with pytest.raises((nats.errors.Error, OSError)):
        asyncio.run(connected(secured, context))

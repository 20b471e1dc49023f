"""Pushes without room in a message: a real broker keeps them, and a mirror applies them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import time
import zlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import nats
import pytest

from hgfleet.core.errors import UnavailableError
from hgfleet.hg import required_copy, wake
from hgfleet.pushlog.record import hash_of
from hgfleet.replication.protocol import messages, push_objects, streams
from hgfleet.replication.protocol.messages import PushMessage
from testing.integration.replication.relaying import events, pushed, relaying, until
from testing.integration.replication.test_apply import Pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.js import JetStreamContext

    from hgfleet.pushlog.record import Record
    from hgfleet.replication.protocol.settings import Settings
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker

LARGE: Final = random.Random(1).randbytes(600_000).hex()
"""A file whose changegroup has no room in a message."""


@contextlib.asynccontextmanager
async def api_of(broker: Broker) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(broker.url)
    try:
        yield client.jetstream(timeout=60)
    finally:
        await client.close()


class Named(NamedTuple):
    """An object with content of its own."""

    id: str
    content: bytes

    def body(self) -> bytes:
        return self.content


async def bucket(broker: Broker) -> Any:
    async with api_of(broker) as api:
        return await api.stream_info(push_objects.STREAM)


def name_of(record: Record) -> str:
    return messages.message_id(record, hash_of(record.line()))


async def kept(settings: Settings, record: Record) -> bytes:
    """Return the changegroup that a mirror gets from the broker."""

    def read() -> bytes:
        with push_objects.fetched(settings, record.line(), record) as file:
            return file.read()

    return await asyncio.to_thread(read)


async def refusal(primary: Primary) -> str:
    relay, asked = str(primary.settings.wake), required_copy.request("broker")
    return required_copy.refusal("broker", await asyncio.to_thread(wake.ask, relay, asked, 0.0))


def test_a_push_without_room_in_its_message_is_whole_at_the_broker(primary: Primary) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            record = primary.push("team/tool", LARGE)
            await pushed(primary, "team/tool", record)
            assert LARGE.encode() in zlib.decompress(await kept(primary.settings, record))
            # Changesets that are missing on the disk: the push is told without them.
            nodes = tuple(f"{number:040x}" for number in range(30_000))
            await pushed(primary, "team/tool", primary.record("team/tool", nodes))
            assert events(relay).count("push-not-kept") == 1
            # A small push has all of it in its message.
            small = primary.push("team/tool", "small")
            await pushed(primary, "team/tool", small)
            with pytest.raises(UnavailableError, match="not have all of object"):
                await kept(primary.settings, small)

    asyncio.run(story())


def test_the_object_of_a_push_is_there_before_its_message_and_is_stored_once(
    primary: Primary, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            publish = relay.broker.publish

            async def refused(*_: object) -> tuple[int, bool]:
                raise ConnectionError("killed here")

            monkeypatch.setattr(relay.broker, "publish", refused)
            record = primary.push("team/tool", LARGE)
            relay.add([record.repository])
            await until("the object", lambda: relay.problems.unpublished)
            state = (await bucket(broker)).state
            assert state.messages > 1
            monkeypatch.setattr(relay.broker, "publish", publish)
            await pushed(primary, "team/tool", record)
            assert (await bucket(broker)).state.last_seq == state.last_seq
            assert "stream-changed" not in events(relay)
            assert await kept(primary.settings, record)

    asyncio.run(story())


def test_a_push_larger_than_its_share_is_left_to_the_source(
    primary: Primary, broker: Broker
) -> None:
    primary.settings = replace(primary.settings, objects_bytes=2**20)

    async def story() -> None:
        async with relaying(primary) as relay:
            record = primary.push("team/tool", LARGE)
            await pushed(primary, "team/tool", record)
            (problem,) = [more["reason"] for event, more in relay.said if event == "push-not-kept"]  # type: ignore[attr-defined]
            assert "have more than" in problem
            assert (await bucket(broker)).state.messages == 0
            async with api_of(broker) as api:
                message = await api.get_last_msg(
                    messages.PUSHES, messages.pushes(record.repository)
                )
            pushed_one = messages.decode_push(message.headers, message.data or b"")
            assert (pushed_one.record, pushed_one.changegroup) == (record, b"")

    asyncio.run(story())


def test_the_bucket_has_a_bound_and_the_oldest_pushes_go_first(
    primary: Primary, broker: Broker
) -> None:
    primary.settings = replace(primary.settings, objects_bytes=3 * 2**20)

    async def story() -> None:
        async with relaying(primary):
            made = []
            for number in range(5):
                content = random.Random(number).randbytes(600_000).hex()
                made.append(primary.push("team/tool", content))
                await pushed(primary, "team/tool", made[-1])
            info = await bucket(broker)
            assert info.config.max_bytes == 3 * 2**20
            assert info.config.max_age == streams.MAX_AGE
            assert info.state.bytes <= 3 * 2**20
            assert await kept(primary.settings, made[-1])
            with pytest.raises(UnavailableError):
                await kept(primary.settings, made[0])

    asyncio.run(story())


def test_objects_go_with_their_repository(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.2) as relay:
            gone, stays = (primary.push(path, LARGE) for path in ("team/tool", "team/other"))
            for path, record in (("team/tool", gone), ("team/other", stays)):
                await pushed(primary, path, record)
            before = (await bucket(broker)).state.bytes
            scanned = relay.publisher.scan()
            relay.publisher.scan = lambda: replace(scanned, purged={gone.repository})  # type: ignore[method-assign]
            await until("it is withdrawn", lambda: "object-withdrawn" in events(relay))
            with pytest.raises(UnavailableError):
                await kept(primary.settings, gone)
            assert await kept(primary.settings, stays)
            assert (await bucket(broker)).state.bytes < before * 0.6
            said = events(relay).count("object-withdrawn")
            await relay.broker.tend_objects({gone.repository})
            assert events(relay).count("object-withdrawn") == said

    asyncio.run(story())


def test_a_broker_without_a_bucket_keeps_no_push_from_mirrors_and_is_no_required_copy(
    primary: Primary, broker: Broker
) -> None:
    broker.kill()
    store = broker.folder / "jetstream"
    broker.more = f'jetstream {{ store_dir: "{store}", max_file_store: 150MB }}'
    broker.start()
    primary.settings = replace(primary.settings, objects_bytes=200 * 2**20)

    async def story() -> None:
        async with relaying(primary) as relay:
            assert "insufficient storage" in " ".join(relay.state()["broker"]["warnings"])
            record = primary.push("team/tool", LARGE)
            await pushed(primary, "team/tool", record)
            async with api_of(broker) as api:
                assert (await api.stream_info(messages.PUSHES)).state.messages == 1
            assert "each push needs a copy at the broker" in await refusal(primary)
            # A broker whose configuration was changed is asked again.
            relay.broker._settings = replace(primary.settings, objects_bytes=2**20)
            await relay.broker.tend_objects(())
            assert "bucket" not in " ".join(relay.state()["broker"]["warnings"])
            assert await refusal(primary) == ""

    asyncio.run(story())


# -- a mirror --------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setenv("HGRCPATH", "")
    return Pair(tmp_path / "pair")


def keep(broker: Broker, push: PushMessage | Named, *, damage: str = "") -> None:
    """Store the object of a push as the relay does; damage removes a chunk or alters the digest."""

    async def story() -> None:
        async with api_of(broker) as api:
            wanted = push_objects.expected(1, 2**26, 3600.0)
            await streams.ensured(api, wanted, lambda *_, **__: None)
            await push_objects.put(api, push.id, io.BytesIO(push.body()))
            last = (await api.stream_info(push_objects.STREAM)).state.last_seq
            if damage == "damaged":
                await api.delete_msg(push_objects.STREAM, last - 1)
            elif damage == "of another digest":
                message = await api.get_msg(push_objects.STREAM, last)
                data = json.loads(message.data or b"")
                data["digest"] = f"SHA-256={'A' * 43}="
                await api.publish(message.subject or "", json.dumps(data).encode())

    asyncio.run(story())


@pytest.fixture
def large(pair: Pair, primary: Primary) -> PushMessage:
    """A push of the pair's primary; the mirror asks the broker of the fixtures."""
    pair.primary.push_commits(3)
    ((line, changegroup),) = pair.primary.messages()
    (entry,) = pair.primary.entries()

    pair.worker._kept = partial(push_objects.fetched, primary.settings)
    return PushMessage("a", line, entry.record, changegroup)


def test_a_mirror_applies_a_large_push_while_the_source_is_away(
    pair: Pair, large: PushMessage, broker: Broker
) -> None:
    keep(broker, large)
    pair.source.down = True
    assert pair.run((large.line, b"")).failure is None
    assert pair.is_equal()
    # It is not read again.
    broker.kill()
    assert pair.run((large.line, b"")).failure is None


@pytest.mark.parametrize(
    "state",
    [
        "missing",
        "damaged",
        "of another digest",
        "of another record",
        "no changegroup",
        "broker away",
    ],
)
def test_a_mirror_asks_the_source_where_the_broker_has_no_whole_object(
    pair: Pair, large: PushMessage, broker: Broker, state: str
) -> None:
    if state in ("damaged", "of another digest"):
        keep(broker, large, damage=state)
    elif state == "of another record":
        keep(broker, Named(large.id, b"{}\n" + large.changegroup))
    elif state == "no changegroup":
        keep(broker, replace(large, changegroup=b"no changegroup"))
    elif state == "broker away":
        broker.kill()
    began = time.monotonic()
    assert pair.run((large.line, b"")).failure is None
    assert pair.source.asked == 1
    # Also without a broker, a repository waits for some seconds at most.
    assert time.monotonic() - began < 60
    assert pair.is_equal()

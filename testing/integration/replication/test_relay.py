"""The relay against a real broker and real repositories."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import time
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import nats
import pytest

from hgfleet.hg import wake
from hgfleet.pushlog import log_file
from hgfleet.pushlog.record import hash_of
from hgfleet.replication.primary.changegroup_worker import Opened
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import Applied, Lease
from hgfleet.replication.repositories import readers_gate
from testing.integration.replication.primary import Primary
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
from testing.integration.support.broker import Broker
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.conftest import WaitFor


def test_a_push_arrives_in_the_stream_with_its_record_and_its_changesets(
    primary: Primary, broker: Broker, tmp_path: Path
) -> None:
    async def story() -> None:
        async with relaying(primary):
            records = [primary.push("team/tool", changesets=2), primary.push("team/tool")]
            await pushed(primary, "team/tool", records[1])
            pushes = [messages.decode_push(*message) for message in await stream_of(broker)]
            assert [push.record for push in pushes] == records
            assert [push.path for push in pushes] == ["team/tool", "team/tool"]
            clone = tmp_path / "clone"
            primary.hg("init", clone)
            for push in pushes:
                apply(clone, push.changegroup)
            nodes = primary.hg("log", "-R", clone, "-T", "{node} ").split()
            assert nodes[::-1] == [node for record in records for node in record.changesets]

    asyncio.run(story())


def apply(clone: Path, changegroup: bytes) -> None:
    """Add a changegroup of a message to a repository."""
    from mercurial import changegroup as changegroups
    from mercurial import util

    repository = Opened().get(str(clone))
    data = util.chunkbuffer([zlib.decompress(changegroup)])
    with repository.lock(), repository.transaction(b"test") as transaction:
        unbundler = changegroups.getunbundler(b"03", data, None)
        unbundler.apply(repository, transaction, b"test", b"test", targetphase=1)


def test_a_scan_finds_the_pushes_of_sessions_that_were_killed(
    primary: Primary, broker: Broker
) -> None:
    primary.push("team/tool")
    primary.push("team/other")
    primary.record("team/tool")

    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            await until("three messages", lambda: events(relay).count("published") == 3)
            primary.record("team/other")
            await until("a later push", lambda: events(relay).count("published") == 4)
        assert sorted(ids(await stream_of(broker))) == sorted(
            [f"{identity('team/tool')}.{number}" for number in (1, 2)]
            + [f"{identity('team/other')}.{number}" for number in (1, 2)]
        )

    asyncio.run(story())


def test_a_lost_position_costs_no_second_message(primary: Primary, broker: Broker) -> None:
    for _ in range(3):
        primary.record("team/tool")

    async def story() -> None:
        async with relaying(primary) as relay:
            await until("three messages", lambda: events(relay).count("published") == 3)
        for file in primary.settings.positions.iterdir():
            file.unlink()
        record = primary.record("team/tool")
        async with relaying(primary) as relay:
            await until("the new one", lambda: events(relay).count("published") == 1)
            assert relay.positions.get(identity("team/tool")).tip.id == record.id
        state = await stream_of(broker)
        assert ids(state) == [f"{identity('team/tool')}.{number}" for number in (1, 2, 3, 4)]

    asyncio.run(story())


def test_a_record_of_an_open_transaction_is_not_published(primary: Primary, broker: Broker) -> None:
    """It may be aborted: the log is truncated then."""
    first = primary.record("team/tool")
    log = primary.store("team/tool") / log_file.NAME
    journal = primary.store("team/tool") / "journal"
    journal.write_bytes(b"00changelog.i\x00100\npushlog\x00%d\n" % log.stat().st_size)
    aborted = primary.record("team/tool")

    async def story() -> None:
        async with relaying(primary) as relay:
            await pushed(primary, "team/tool", first)
            relay.add([identity("team/tool")])
            await until("the queue is empty", lambda: not len(relay.queue))
            assert events(relay).count("published") == 1
            with log.open("ab") as file:
                file.truncate(log.stat().st_size - len(aborted.line()) - 1)
            journal.unlink()
            other = primary.record("team/tool", user="bob")
            await pushed(primary, "team/tool", other)
            assert [
                messages.decode_push(*message).record for message in await stream_of(broker)
            ] == [
                first,
                other,
            ]

    asyncio.run(story())


def test_a_push_says_on_which_mirrors_it_is_visible(primary: Primary, broker: Broker) -> None:
    # No lease ends while the machine stalls, until the slow mirror has been waited for.
    primary.settings = replace(primary.settings, lease_seconds=12.0)

    async def story() -> None:
        async with relaying(primary) as relay, Mirror("hgweb1", broker) as mirror:
            await until("the lease", lambda: relay.members.live(time.monotonic()) == ("hgweb1",))
            said = await pushed(primary, "team/tool", primary.record("team/tool"))
            assert said.startswith("push 1 recorded; visible on 1/2 mirrors in ")
            assert said.endswith("; hgweb2 is down")
            async with Mirror("hgweb2", broker) as two:
                await until("the lease", lambda: len(relay.members.live(time.monotonic())) == 2)
                said = await pushed(primary, "team/tool", primary.record("team/tool"))
                assert said.startswith("push 2 recorded; visible on 2/2 mirrors in ")
                two.is_slow = True
                said = await pushed(primary, "team/tool", primary.record("team/tool"), wait=3)
                assert said == (
                    "push 3 recorded; hgweb2 does not show it yet (waited 3 s); "
                    "visible on 1/2 mirrors"
                )
            assert mirror.confirmed[-1].member
            await until("the lease ends", lambda: "mirror-left" in events(relay))
            said = await pushed(primary, "team/tool", primary.record("team/tool"))
            assert said.endswith("; hgweb2 is down")

    asyncio.run(story())


def test_messages_of_a_mirror_in_another_name_do_not_count(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            client = await nats.connect(broker.url)
            lease = Lease("hgweb2", "boot", True, 0, 0, time.time())
            for subject, body in (
                (messages.leases("hgweb1"), lease.body()),
                (messages.leases("stranger"), lease.body()),
                (messages.leases("hgweb1"), b"[" * 5000),
                (messages.applied("hgweb1"), Applied("hgweb2", "0" * 32, 1).body()),
            ):
                await client.publish(subject, body)
            await client.flush()
            await until("all are ignored", lambda: events(relay).count("ignored") >= 4)
            assert relay.members.live(time.monotonic()) == ()
            await client.close()

    asyncio.run(story())


def test_while_the_broker_is_down_pushes_go_on_and_arrive_later(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await pushed(primary, "team/tool", primary.record("team/tool"))
            broker.kill()
            await until("the loss is noticed", lambda: not relay.broker.ready.is_set())
            for _ in range(3):
                said = await pushed(primary, "team/tool", primary.record("team/tool"))
                assert said.endswith("recorded; replication is down, mirrors will show it later")
            problem = relay.state()["broker"]["problem"]
            assert "no broker answers at nats://127.0.0.1" in problem
            await asyncio.to_thread(broker.start)
            await until("all are published", lambda: events(relay).count("published") == 4)
            published = ids(await stream_of(broker))
            assert published == [f"{identity('team/tool')}.{number}" for number in (1, 2, 3, 4)]

    asyncio.run(story())


def settling(primary: Primary) -> float:
    """Stretch leases and the settling of a restart for a stalled machine; return the seconds."""
    seconds = primary.settings.lease_seconds * pace.PACE.measure_again()
    primary.settings = replace(primary.settings, lease_seconds=seconds)
    return seconds


def test_a_push_during_a_restart_of_the_broker_waits_for_it(
    primary: Primary, broker: Broker
) -> None:
    settled = settling(primary)

    async def story() -> None:
        async with relaying(primary, settle_seconds=settled) as relay:
            broker.kill()
            await until("the loss is noticed", lambda: not relay.broker.ready.is_set())
            push = asyncio.create_task(pushed(primary, "team/tool", primary.record("team/tool")))
            await asyncio.to_thread(broker.start)
            said = await push
            assert said.endswith("visible on 0/2 mirrors; hgweb1, hgweb2 are down")

    asyncio.run(story())


def test_a_push_during_a_restart_of_the_relay_waits_for_it(
    primary: Primary, broker: Broker
) -> None:
    settled = settling(primary)

    async def story() -> None:
        async with Mirror("hgweb1", broker) as mirror:
            push = asyncio.create_task(pushed(primary, "team/tool", primary.record("team/tool")))
            async with relaying(primary, settle_seconds=settled) as relay:
                assert "visible on 1/2 mirrors" in await push
                mirror.is_slow = True
                record = primary.record("team/tool")
                push = asyncio.create_task(pushed(primary, "team/tool", record))
                await until("it is published", lambda: events(relay).count("published") == 2)
            # Its session is left without an answer, and the mirror applies it.
            mirror.shown[record.repository] = record.id, hash_of(record.line())
            async with relaying(primary, settle_seconds=settled):
                assert "visible on 1/2 mirrors" in await push

    asyncio.run(story())


def test_a_broker_that_hangs_holds_a_push_for_its_wait_alone(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            broker.pause()
            try:
                said = await pushed(primary, "team/tool", primary.record("team/tool"), wait=1)
            finally:
                broker.resume()
            assert said == "push 1 recorded; replication is down, mirrors will show it later"
            await until("it is published", lambda: "published" in events(relay))
        assert ids(await stream_of(broker)) == [f"{identity('team/tool')}.1"]

    asyncio.run(story())


def test_a_killed_relay_loses_nothing_and_publishes_nothing_twice(
    primary: Primary, broker: Broker, wait_for: WaitFor
) -> None:
    """Killed after its first message, after some more, and again and again."""
    paths = ("team/tool", "team/other")
    each = 0
    for messages_before_kill in (26, 0, 1, 2, 3, 10, 25, 50):
        # Few at first: mirrors get only the end of a long log that the stream does not know.
        more = 50 if each else 25
        each += more
        for path in paths * more:
            primary.record(path)
        with running(primary) as relay:
            assert relay.stdout is not None
            seen = 0
            while seen < messages_before_kill:
                line = relay.stdout.readline()
                assert line, "the relay ended"
                seen += "event=relay.published" in line
    total = len(paths) * each
    # A pipe that nothing reads would be full after some hundred events.
    with running(primary, subprocess.DEVNULL):
        wait_for("all messages", lambda: asyncio.run(size_of(broker)) >= total, SECONDS)
    published = ids(asyncio.run(stream_of(broker)))
    for path in paths:
        own = [push for push in published if push.startswith(identity(path))]
        assert own == [f"{identity(path)}.{number}" for number in range(1, each + 1)]


@contextlib.contextmanager
def running(primary: Primary, log: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """Run a relay as a process, and kill it at the end."""
    relay = primary.start_relay(log)
    try:
        yield relay
    finally:
        relay.kill()
        relay.communicate()


async def size_of(broker: Broker) -> int:
    """Return the number of messages of the stream of pushes."""
    client = await nats.connect(broker.url)
    try:
        return (await client.jetstream().stream_info(messages.PUSHES)).state.messages
    finally:
        await client.close()


def test_a_changegroup_that_does_not_fit_is_not_in_its_message(
    primary: Primary, broker: Broker
) -> None:
    import random

    async def story() -> None:
        large = random.Random(1).randbytes(600_000).hex()
        async with relaying(primary):
            record = primary.push("team/tool", large)
            await pushed(primary, "team/tool", record)
            nodes = tuple(f"{number:040x}" for number in range(30_000))
            huge = primary.record("team/tool", nodes)
            await pushed(primary, "team/tool", huge)
            first, second = await stream_of(broker)
            assert messages.decode_push(*first) == messages.PushMessage(
                "team/tool", record.line(), record, registry=readers_gate.NONE
            )
            with pytest.raises(messages.LargeRecordError) as caught:
                messages.decode_push(*second)
            assert (caught.value.repository, caught.value.number) == (record.repository, 2)

    asyncio.run(story())


def test_a_log_that_is_damaged_behind_its_position_is_named_and_stops_no_other_repository(
    primary: Primary, broker: Broker
) -> None:
    name = identity("team/tool")

    async def story() -> None:
        async with relaying(primary) as relay:
            await pushed(primary, "team/tool", primary.record("team/tool"))
            log = primary.store("team/tool") / log_file.NAME
            before = log.read_bytes()
            log.write_bytes(before + b"nonsense\n")
            relay.add([name])
            unpublished = relay.problems.unpublished
            await until("it is named", lambda: name in unpublished)
            assert "pushlog, byte" in unpublished[name]
            await pushed(primary, "team/other", primary.record("team/other"))
            log.write_bytes(before)
            primary.record("team/tool", repository="ab" * 16)
            relay.add([name])
            wanted = f"belongs to repository {'ab' * 16}, this chain to {name}"
            await until("it is named", lambda: wanted in unpublished[name])
            log.write_bytes(before)
            said = await pushed(primary, "team/tool", primary.record("team/tool"))
            assert "replication is down" not in said
            assert unpublished == {}
            assert relay.problems.fenced == {}
        published = ids(await stream_of(broker))
        assert published == [f"{name}.1", f"{identity('team/other')}.1", f"{name}.2"]

    asyncio.run(story())


def test_a_stream_that_was_deleted_is_made_again_and_mirrors_learn_of_the_last_pushes(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            for _ in range(3):
                await pushed(primary, "team/tool", primary.record("team/tool"))
            client = await nats.connect(broker.url)
            await client.jetstream().delete_stream(messages.PUSHES)
            await client.close()
            broker.kill()
            await until("the loss is noticed", lambda: not relay.broker.ready.is_set())
            await asyncio.to_thread(broker.start)
            await until("it is made again", lambda: "stream-lost-messages" in events(relay))
            last = f"{identity('team/tool')}.3"
            for _ in range(500):
                if ids(await stream_of(broker)) == [last]:
                    break
            assert ids(await stream_of(broker)) == [last]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"retention": "workqueue"}, "retention is "),
        ({"subjects": ["hgfleet.pushes.*", "other.>"]}, ""),
        ({"max_msgs": 1, "discard": "new"}, ""),
    ],
)
def test_another_configuration_of_the_stream_is_changed_or_named(
    primary: Primary, broker: Broker, settings: dict[str, Any], says: str
) -> None:
    async def story() -> None:
        client = await nats.connect(broker.url)
        api = client.jetstream()
        await api.add_stream(
            **({"name": messages.PUSHES, "subjects": ["hgfleet.pushes.*"]} | settings)
        )
        async with relaying(primary, connected=not says) as relay:
            if says:
                await until("it is named", lambda: says in relay.state()["broker"]["problem"])
                assert "delete the stream" in relay.state()["broker"]["problem"]
                said = await pushed(primary, "team/tool", primary.record("team/tool"))
                assert said.endswith("replication is down, mirrors will show it later")
                await api.delete_stream(messages.PUSHES)
            else:
                primary.record("team/tool")
                relay.add([identity("team/tool")])
            await until("it is published", lambda: "published" in events(relay))
            info = await api.stream_info(messages.PUSHES)
            assert info.config.subjects == ["hgfleet.pushes.*"]
            assert info.config.max_msgs == -1
        await client.close()

    asyncio.run(story())


def test_a_full_stream_is_named_with_its_way_out(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await pushed(primary, "team/tool", primary.record("team/tool"))
            client = await nats.connect(broker.url)
            api = client.jetstream()
            config = (await api.stream_info(messages.PUSHES)).config
            await api.update_stream(config.evolve(max_msgs=1, discard="new"))
            said = await pushed(primary, "team/tool", primary.record("team/tool"))
            assert said.endswith("replication is down, mirrors will show it later")
            problem = relay.state()["broker"]["problem"]
            assert "takes no more messages" in problem
            assert "give it more room" in problem
            await api.update_stream(config)
            await until("it is published", lambda: events(relay).count("published") == 2)
            assert relay.state()["broker"]["problem"] == ""
            await client.close()

    asyncio.run(story())


def test_the_state_of_the_relay_is_in_a_file(primary: Primary, broker: Broker) -> None:
    file = primary.settings.state / "state.json"

    def state() -> dict[str, Any]:
        return json.loads(file.read_text()) if file.exists() else {}

    async def story() -> None:
        async with relaying(primary), Mirror("hgweb1", broker):
            await until(
                "the mirror is live",
                lambda: state().get("mirrors", {}).get("hgweb1", {}).get("live"),
            )
            content = state()
            assert content["role"] == "primary"
            assert content["broker"] == {"connected": True, "problem": "", "warnings": []}
            assert content["mirrors"]["hgweb2"] == {"live": False}
            assert file.stat().st_mode & 0o777 == 0o644

    asyncio.run(story())


def test_a_broker_that_refuses_the_host_is_named_and_pushes_go_on(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", 'authorization { user: "hg1", password: "secret" }')
    broker.start()
    try:
        primary = Primary(tmp_path / "hg1", broker, ("hgweb1",))
        primary.add("team/tool")

        async def story() -> None:
            async with relaying(primary, connected=False) as relay:
                await until(
                    "it is named",
                    lambda: "refuses this host" in relay.state()["broker"]["problem"],
                )
                said = await pushed(primary, "team/tool", primary.record("team/tool"))
                assert said == "push 1 recorded; replication is down, mirrors will show it later"

        asyncio.run(story())
    finally:
        broker.kill()


def test_the_relay_ends_while_it_closes_a_connection(primary: Primary) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            client = relay.broker.client
            assert client is not None
            is_closing, close = asyncio.Event(), client.close

            async def slow() -> None:
                is_closing.set()
                await asyncio.sleep(0.5)
                await close()

            client.close = slow
            relay.broker.lose(ConnectionError("away"))
            await asyncio.wait_for(is_closing.wait(), SECONDS)
        # Here its task has ended.

    asyncio.run(story())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_relay_that_dies_at_a_message_goes_on_with_it(
    primary: Primary, broker: Broker, when: str
) -> None:
    for _ in range(9):
        primary.record("team/tool")
    for _ in range(2):
        relay = primary.start_relay(subprocess.DEVNULL, when)
        assert relay.wait(SECONDS) == -signal.SIGKILL

    async def story() -> None:
        async with relaying(primary) as relay:
            last = primary.record("team/tool")
            await pushed(primary, "team/tool", last)
            assert relay.positions.get(identity("team/tool")).tip.id == last.id
        expected = [f"{identity('team/tool')}.{number}" for number in range(1, 11)]
        assert ids(await stream_of(broker)) == expected

    asyncio.run(story())


def test_a_message_has_the_stamp_of_the_registry(broker: Broker, tmp_path: Path) -> None:
    primary = Primary(tmp_path / "hg1", broker)
    primary.add("a")
    primary.dynamic.parent.mkdir()

    async def story() -> None:
        async with relaying(primary) as relay:
            for content in (b"", b"one", b"two"):
                if content:
                    primary.dynamic.with_name("new").write_bytes(content)
                    primary.dynamic.with_name("new").rename(primary.dynamic)
                primary.push("a")
                before = events(relay).count("published")
                relay.add([identity("a")])
                await until("a push", lambda n=before: events(relay).count("published") > n)
        stamps = [headers[messages.REGISTRY_HEADER] for headers, _ in await stream_of(broker)]
        assert stamps == ["none", readers_gate.stamp(b"one"), readers_gate.stamp(b"two")]

    asyncio.run(story())


def test_changes_of_documents_are_told_at_once(broker: Broker, tmp_path: Path) -> None:
    primary = Primary(tmp_path / "hg1", broker)
    primary.settings = replace(
        primary.settings, manifests=tmp_path / "manifests", pull_bundles=tmp_path / "pullbundles"
    )
    tokens = primary.dynamic.parent / "tokens"
    for folder in (primary.settings.manifests, primary.settings.pull_bundles, tokens):
        folder.mkdir(parents=True, exist_ok=True)
    told: list[str] = []

    async def hear(message: Any) -> None:
        told.append(message.subject)

    async def story() -> None:
        client = await nats.connect(broker.url)
        await client.subscribe("hgfleet.documents.*", cb=hear)
        await client.flush()
        with running(primary, subprocess.DEVNULL):
            # At the start, for changes before it.
            await until("all hints", lambda: len(told) >= 2)
            for name, file in (
                ("registry", primary.dynamic),
                ("tokens", tokens / "tokens.json"),
                ("manifests", primary.settings.manifests / "a.manifest"),
            ):
                subject = messages.documents(name)
                before = told.count(subject)
                (tmp_path / "new").write_bytes(b"{}")
                (tmp_path / "new").rename(file)
                await until(name, lambda n=before, of=subject: told.count(of) > n)
        await client.close()

    asyncio.run(story())


async def changed(primary: Primary, document: str, wait: float = 60.0) -> str:
    """Wake the relay as a self-service command does; return the line that the person reads."""
    request = wake.document_request(document)
    answer = await asyncio.to_thread(wake.ask, str(primary.settings.wake), request, wait)
    return wake.mirrors(answer, wait, wake.REFUSED)


def test_who_changes_a_document_is_told_which_mirrors_have_it(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay, Mirror("hgweb1", broker):
            async with Mirror("hgweb2", broker) as second:
                await until("two members", lambda: len(relay.members.live(time.monotonic())) == 2)
                for name in (wake.TOKENS, wake.REGISTRY, wake.TOKENS):
                    said = await changed(primary, name)
                    assert said.startswith("refused on 2/2 mirrors in ")
                second.is_slow = True
                assert await changed(primary, wake.TOKENS, 3) == (
                    "hgweb2 may still accept it (waited 3 s); refused on 1/2 mirrors"
                )
            said = await changed(primary, wake.TOKENS)
            assert said.startswith("refused on 1/2 mirrors in ")
            assert said.endswith("; hgweb2 is down")

    asyncio.run(story())


def test_a_change_of_a_document_is_not_held_up_by_the_broker(
    primary: Primary, broker: Broker
) -> None:
    down = "replication is down, mirrors may accept it until it is back"

    async def story() -> None:
        async with relaying(primary) as relay:
            broker.pause()
            try:
                assert await changed(primary, wake.TOKENS, 1) == down
            finally:
                broker.resume()
            broker.kill()
            await until("the loss is noticed", lambda: not relay.broker.ready.is_set())
            assert await changed(primary, wake.TOKENS) == down

    asyncio.run(story())

"""The relay, and repositories that people rename, delete and make again at the same path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity as identities
from hgfleet.pushlog import log_file
from hgfleet.replication.protocol import messages
from testing.integration.replication.relaying import (
    Mirror,
    events,
    ids,
    push_of,
    pushed,
    relaying,
    stream_of,
    until,
)

if TYPE_CHECKING:
    from hgfleet.pushlog.record import Record
    from hgfleet.replication.primary.relay import Relay
    from testing.integration.replication.primary import Primary
    from testing.integration.support.broker import Broker

PATH = "people/bob/x"
OLD, NEW = "1f" * 16, "2f" * 16
BEFORE = 3
"""Pushes to the repository that is deleted."""


def record(primary: Primary) -> Record:
    # The time is after the start of the relay, so the push has an event.
    return primary.record(PATH, time=2_000_000_000_000)


async def delete_and_make_again(primary: Primary, relay: Relay) -> None:
    """Push to a repository, delete it, and make another repository at its path."""
    primary.people_create(PATH, OLD)
    for _ in range(BEFORE):
        said = await pushed(primary, PATH, record(primary))
        assert "visible on 1/2 mirrors" in said
    await until("all events", lambda: events(relay).count("announced") == BEFORE)
    primary.people_archive(PATH)
    primary.people_delete(PATH)
    primary.people_create(PATH, NEW)


@pytest.mark.parametrize("pushes", [1, BEFORE, BEFORE + 2], ids=["shorter", "equal", "longer"])
def test_a_repository_made_again_at_its_path_is_replicated(
    primary: Primary, broker: Broker, pushes: int
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay, Mirror("hgweb1", broker):
            await until("the lease", lambda: "mirror-joined" in events(relay))
            await delete_and_make_again(primary, relay)
            for _ in range(pushes):
                said = await pushed(primary, PATH, record(primary), wait=20)
                assert "visible on 1/2 mirrors" in said
            total = BEFORE + pushes
            await until("all events", lambda: events(relay).count("announced") == total)
            assert relay.state()["problems"] == {}
        expected = [f"{OLD}.{number}" for number in range(1, BEFORE + 1)]
        expected += [f"{NEW}.{number}" for number in range(1, pushes + 1)]
        assert ids(await stream_of(broker)) == expected
        assert ids(await stream_of(broker, messages.EVENTS)) == expected

    asyncio.run(story())


@pytest.mark.parametrize("pushes", [1, BEFORE, BEFORE + 2], ids=["shorter", "equal", "longer"])
def test_the_last_of_several_pushes_to_it_brings_them_all(
    primary: Primary, broker: Broker, pushes: int
) -> None:
    """Their sessions were killed, or the relay was busy."""

    async def story() -> None:
        async with relaying(primary) as relay, Mirror("hgweb1", broker):
            await until("the lease", lambda: "mirror-joined" in events(relay))
            await delete_and_make_again(primary, relay)
            records = [record(primary) for _ in range(pushes)]
            said = await pushed(primary, PATH, records[-1], wait=20)
            assert "visible on 1/2 mirrors" in said
            assert relay.state()["problems"] == {}
        published = ids(await stream_of(broker))
        assert published[BEFORE:] == [f"{NEW}.{number}" for number in range(1, pushes + 1)]

    asyncio.run(story())


@pytest.mark.parametrize("pushes", [1, BEFORE, BEFORE + 2], ids=["shorter", "equal", "longer"])
def test_a_scan_finds_pushes_to_it(primary: Primary, broker: Broker, pushes: int) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay, Mirror("hgweb1", broker):
            await until("the lease", lambda: "mirror-joined" in events(relay))
            await delete_and_make_again(primary, relay)
            for _ in range(pushes):
                record(primary)
            total = BEFORE + pushes
            await until("all messages", lambda: events(relay).count("published") == total)
            assert relay.state()["problems"] == {}

    asyncio.run(story())


def test_a_deleted_repository_leaves_neither_a_problem_nor_a_position(
    primary: Primary,
) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            primary.people_create(PATH, OLD)
            await pushed(primary, PATH, record(primary))
            await until("its event", lambda: relay.positions.announced(OLD))
            with (primary.store(PATH) / log_file.NAME).open("ab") as log:
                log.write(b"nonsense\n")
            await until("it is named", lambda: PATH in relay.state()["problems"])
            primary.people_archive(PATH)
            await until("it is out of service", lambda: not relay.state()["problems"])
            # It may come back.
            assert relay.positions.get(OLD) is not None
            primary.people_delete(PATH)
            await until("it is forgotten", lambda: relay.positions.get(OLD) is None)
            assert relay.positions.announced(OLD) is None
            assert relay.state()["problems"] == {}
            assert relay.announcer.state()["problems"] == []

    asyncio.run(story())


def test_the_event_of_a_deleted_repository_waits_for_no_mirror(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with (
            relaying(primary, scan_seconds=0.1) as relay,
            Mirror("hgweb1", broker) as mirror,
        ):
            await until("the lease", lambda: "mirror-joined" in events(relay))
            mirror.is_slow = True
            primary.people_create(PATH, OLD)
            await pushed(primary, PATH, record(primary), wait=0)
            await until("it waits", lambda: relay.announcer.state()["waiting"] == 1)
            primary.people_delete(PATH)
            await until("it is given up", lambda: relay.announcer.state()["waiting"] == 0)

    asyncio.run(story())


def test_a_renamed_repository_and_one_at_its_former_path_are_two(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay, Mirror("hgweb1", broker):
            await until("the lease", lambda: "mirror-joined" in events(relay))
            primary.people_create(PATH, OLD)
            await pushed(primary, PATH, record(primary))
            primary.people_rename(PATH, "people/bob/y")
            primary.people_create(PATH, NEW)
            for path in (PATH, "people/bob/y", PATH):
                said = await pushed(primary, path, primary.record(path), wait=20)
                assert "visible on 1/2 mirrors" in said
        sent = await stream_of(broker)
        assert [(push_of(headers), headers[messages.PATH_HEADER]) for headers, _ in sent] == [
            (f"{OLD}.1", PATH),
            (f"{NEW}.1", PATH),
            (f"{OLD}.2", "people/bob/y"),
            (f"{NEW}.2", PATH),
        ]
        heads = [messages.decode_push(*message) for message in sent]
        assert [push.hash for push in heads] == [
            headers[messages.HASH_HEADER] for headers, _ in sent
        ]

    asyncio.run(story())


def test_a_folder_that_is_another_repository_than_its_entry_is_not_published(
    primary: Primary,
) -> None:
    """The entry is at its new path already, and the folder of another repository still there."""

    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            primary.people_create(PATH, OLD)
            await pushed(primary, PATH, record(primary))
            # A step that began before may read the log afterwards.
            await until("nothing is under way", lambda: not len(relay.queue))
            file = primary.path(PATH) / identities.FILE
            file.write_text(identities.text(NEW))
            said = await pushed(primary, PATH, record(primary), wait=20)
            assert said.endswith("replication is down, mirrors will show it later")
            wanted = f"got repository {NEW}, expected {OLD}"
            await until("it is named", lambda: wanted in relay.state()["problems"].get(PATH, ""))
            file.write_text(identities.text(OLD))
            await until("it is published", lambda: events(relay).count("published") == 2)
            await until("the problem is over", lambda: not relay.state()["problems"])

    asyncio.run(story())


def test_another_push_of_the_same_number_is_not_taken_for_the_one_that_mirrors_have(
    primary: Primary, broker: Broker
) -> None:
    """The repository came from an older copy, and the relay has lost its positions."""
    primary.people_create(PATH, OLD)
    log = primary.store(PATH) / log_file.NAME

    async def story() -> None:
        async with relaying(primary):
            for _ in range(3):
                await pushed(primary, PATH, record(primary))
        for file in primary.settings.positions.iterdir():
            file.unlink()
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:2]))
        primary.record(PATH, user="mallory")
        async with relaying(primary, scan_seconds=0.1) as relay:
            await until("it is named", lambda: PATH in relay.state()["problems"])
            reason = relay.state()["problems"][PATH]
            assert reason.startswith("fenced: push 3 (")
            assert f"is not in the push log of {PATH}, whose last push is 3" in reason
        assert len(await stream_of(broker)) == 3

    asyncio.run(story())


def test_while_the_registry_of_people_is_damaged_nothing_is_given_up(
    primary: Primary,
) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            primary.people_create(PATH, OLD)
            await pushed(primary, PATH, record(primary))
            good = primary.dynamic.read_bytes()
            primary.dynamic.write_bytes(b"{")
            await until("it is told", lambda: "registry" in events(relay))
            # Repositories of the inventory go on.
            await pushed(primary, "team/tool", primary.record("team/tool"))
            assert relay.positions.get(OLD) is not None
            primary.dynamic.write_bytes(good)
            said = await pushed(primary, PATH, record(primary))
            assert "replication is down" not in said

    asyncio.run(story())

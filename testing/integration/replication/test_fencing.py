"""A relay whose host is no longer the primary, or not yet again, against a real broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import nats
import pytest

from hgfleet.replication.terms import broker_terms, host_terms
from hgfleet.replication.terms.broker_terms import ClaimedError
from hgfleet.replication.terms.host_terms import Term
from testing.integration.replication.primary import Primary
from testing.integration.replication.relaying import (
    events,
    ids,
    pushed,
    relaying,
    stream_of,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.support.broker import Broker

ADDRESS = "ssh://hg@hg.example.org"


@pytest.fixture
def primary(tmp_path: Path, broker: Broker) -> Primary:
    made = Primary(tmp_path / "hg1", broker, ("hgweb1",))
    made.add("team/tool")
    return made


async def add_term(broker: Broker, term: Term) -> None:
    """Begin a term, as a promotion does."""
    client = await nats.connect(broker.url)
    try:
        api = client.jetstream(timeout=30)
        await broker_terms.add(api, term, (await broker_terms.last(api)).sequence)
    finally:
        await client.close()


async def last_term(broker: Broker) -> Term | None:
    client = await nats.connect(broker.url)
    try:
        return (await broker_terms.last(client.jetstream(timeout=30))).term
    finally:
        await client.close()


def test_a_boot_takes_no_push_until_the_broker_confirms_the_term(
    primary: Primary, broker: Broker
) -> None:
    unconfirmed = primary.settings.fence / "unconfirmed"
    unconfirmed.write_text("this host has started\n")
    broker.kill()

    async def story() -> None:
        async with relaying(primary, connected=False) as relay:
            assert not relay.broker.ready.is_set()
            assert unconfirmed.exists()
            await asyncio.to_thread(broker.start)
            await until("it is confirmed", lambda: not unconfirmed.exists())
            assert host_terms.own(primary.settings) == (1, "hg1")
        term = await last_term(broker)
        assert term is not None
        assert (term.epoch, term.primary) == (1, "hg1")

    asyncio.run(story())


def test_a_primary_that_returns_after_a_promotion_is_fenced_and_publishes_nothing(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await until("the broker", relay.broker.ready.is_set)
            await pushed(primary, "team/tool", primary.record("team/tool"))
        await add_term(broker, Term(2, "hgweb1", ADDRESS))
        (primary.settings.fence / "unconfirmed").write_text("this host has started\n")
        primary.record("team/tool")
        async with relaying(primary, connected=False) as relay:
            await until("it is fenced", lambda: "fenced" in events(relay))
            await until("it says so", lambda: "hgweb1" in relay.state()["broker"]["problem"])
            sentence = (primary.settings.terms / "fenced").read_text()
            assert "hgweb1 has been the primary of this site since epoch 2" in sentence
            assert ADDRESS in sentence
            assert host_terms.own(primary.settings) == (2, "hgweb1")
            assert (primary.settings.fence / "unconfirmed").exists()
            assert "published" not in events(relay)
        assert len(ids(await stream_of(broker))) == 1

    asyncio.run(story())


def test_a_promotion_fences_a_primary_that_is_connected(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await until("the broker", relay.broker.ready.is_set)
            await pushed(primary, "team/tool", primary.record("team/tool"))
            await add_term(broker, Term(2, "hgweb1", ADDRESS))
            await until("it is fenced", lambda: (primary.settings.terms / "fenced").exists())
            said = await pushed(primary, "team/tool", primary.record("team/tool"), wait=1)
            assert said.endswith("replication is down, mirrors will show it later")
            # A promotion back: the term is of this host again.
            await add_term(broker, Term(3, "hg1", ADDRESS))
            await until("it publishes", lambda: events(relay).count("published") == 2)
            assert host_terms.own(primary.settings) == (3, "hg1")

    asyncio.run(story())


def test_a_broker_without_memory_learns_the_term_of_the_primary_again(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        host_terms.remember(primary.settings, Term(4, "hg1"))
        async with relaying(primary) as relay:
            await until("it is confirmed", relay.broker.ready.is_set)
        term = await last_term(broker)
        assert term is not None
        assert (term.epoch, term.primary) == (4, "hg1")
        former = replace(primary.settings, host="hg0", terms=primary.root / "hg0")
        former.terms.mkdir()
        assert (
            host_terms.standing(term, host_terms.own(former), "hg0") is host_terms.Standing.FENCED
        )

    asyncio.run(story())


def test_of_two_promotions_in_the_same_moment_one_fails(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await until("the streams are there", relay.broker.ready.is_set)
        client = await nats.connect(broker.url)
        api = client.jetstream(timeout=30)
        last = await broker_terms.last(api)
        await broker_terms.add(api, Term(2, "hgweb1"), last.sequence)
        with pytest.raises(ClaimedError):
            await broker_terms.add(api, Term(2, "hgweb2"), last.sequence)
        assert (await broker_terms.last(api)).term == Term(2, "hgweb1")
        await client.close()

    asyncio.run(story())

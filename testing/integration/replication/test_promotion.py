"""Promotion of a mirror against a real broker: pushes go on in the next epoch, none is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import nats
import pytest

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import log_file
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.replication.documents.documents import Document
from hgfleet.replication.mirror import state_file
from hgfleet.replication.mirror.state_file import State
from hgfleet.replication.promotion import lifting, promote
from hgfleet.replication.promotion.promote import Promotion, PromotionRefusedError
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import PushMessage
from hgfleet.replication.protocol.settings import Role
from hgfleet.replication.terms import broker_terms, given_up, host_terms, repository_fences
from hgfleet.replication.terms.losses import Known, parse_accepted
from testing.integration.replication.primary import Primary
from testing.integration.replication.relaying import (
    events,
    identity,
    ids,
    pushed,
    relaying,
    stream_of,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.pushlog.record import Record
    from testing.integration.support.broker import Broker

TOOL = "team/tool"


@pytest.fixture
def primary(tmp_path: Path, broker: Broker) -> Primary:
    made = Primary(tmp_path / "hg1", broker, ("hgweb1",))
    made.add(TOOL)
    return made


@pytest.fixture
def mirror(tmp_path: Path, broker: Broker) -> Primary:
    made = Primary(tmp_path / "hgweb1", broker, ("hg1",))
    made.add(TOOL)
    made.settings = replace(made.settings, host="hgweb1", role=Role.MIRROR)
    (made.settings.terms / "fenced").write_text("hg1 is the primary\n")
    return made


def catch_up(mirror: Primary, primary: Primary) -> None:
    shutil.copy(primary.store(TOOL) / log_file.NAME, mirror.store(TOOL) / log_file.NAME)


def promotion(mirror: Primary, *accepted: str, said: list[str] | None = None) -> Promotion:
    made = Promotion(
        mirror.settings,
        None,
        (),
        [parse_accepted(text) for text in accepted],
        (said if said is not None else []).append,
    )
    made.patience = 0.0
    return made


def new_term(primary: Primary, *accepted: str) -> Promotion:
    made = Promotion(
        primary.settings, None, (), [parse_accepted(text) for text in accepted], print, again=True
    )
    made.patience = 0.0
    return made


def become_primary(mirror: Primary) -> None:
    """Give the mirror the settings of a primary, as the roles do after the promotion."""
    mirror.settings = replace(mirror.settings, role=Role.PRIMARY, primary="hgweb1")


async def first_pushes(primary: Primary, count: int) -> None:
    async with relaying(primary) as relay:
        await until("the broker", relay.broker.ready.is_set)
        for _ in range(count):
            await pushed(primary, TOOL, primary.record(TOOL))


def test_pushes_go_on_at_the_new_primary_and_the_former_one_refuses(
    primary: Primary, mirror: Primary, broker: Broker
) -> None:
    async def story() -> None:
        await first_pushes(primary, 2)
        catch_up(mirror, primary)
        assert (await promotion(mirror).run(None, dry_run=True)).epoch == 2
        assert host_terms.own(mirror.settings) == (1, "")
        term = await promotion(mirror).run(None)
        assert (term.epoch, term.primary) == (2, "hgweb1")
        assert host_terms.own(mirror.settings) == (2, "hgweb1")
        assert not (mirror.settings.terms / "fenced").exists()
        become_primary(mirror)
        async with relaying(mirror) as relay:
            await until("the broker", relay.broker.ready.is_set)
            await pushed(mirror, TOOL, mirror.record(TOOL, epoch=2))
        async with relaying(primary, connected=False) as relay:
            await until("it is fenced", lambda: "fenced" in events(relay))
            assert "hgweb1 has been the primary" in (primary.settings.terms / "fenced").read_text()
        name = identity(TOOL)
        assert ids(await stream_of(broker)) == [f"{name}.1", f"{name}.2", f"{name}.3.2"]

    asyncio.run(story())


def test_a_push_that_the_mirror_does_not_have_is_named_and_refuses_the_promotion(
    primary: Primary, mirror: Primary, broker: Broker
) -> None:
    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        await first_pushes(primary, 1)
        with pytest.raises(PromotionRefusedError) as caught:
            await promotion(mirror).run(None)
        assert "team/tool: push 2 by alice is known to the stream" in str(caught.value)
        assert host_terms.own(mirror.settings) == (1, "")
        with pytest.raises(PromotionRefusedError):
            await promotion(mirror, "team/tool@1").run(None)
        await promotion(mirror, "team/tool@2").run(None)
        become_primary(mirror)
        # The next push with the number of the push that was given up reaches mirrors.
        async with relaying(mirror) as relay:
            await until("the broker", relay.broker.ready.is_set)
            await pushed(mirror, TOOL, mirror.record(TOOL, epoch=2, user="bob"))
            await until("it is published", lambda: "published" in events(relay))
        last = (await stream_of(broker))[-1]
        assert messages.decode_push(*last).record.user == "bob"
        assert messages.decode_push(*last).record.id == 2

    asyncio.run(story())


def test_a_push_after_the_check_is_fenced_and_not_given_up(
    primary: Primary, mirror: Primary, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former primary published it, and no operator named it."""
    check, checks = Promotion._check, []

    async def publish(record: Record) -> None:
        message = PushMessage(TOOL, record.line(), record)
        client = await nats.connect(broker.url)
        await client.jetstream().publish(
            messages.pushes(record.repository), message.body(), headers=message.headers()
        )
        await client.close()

    async def check_and_publish(run: Promotion, api: object) -> object:
        judged = await check(run, api)  # type: ignore[arg-type]
        checks.append(1)
        if len(checks) == 2:
            await publish(primary.record(TOOL))
        return judged

    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        monkeypatch.setattr(Promotion, "_check", check_and_publish)
        await promotion(mirror).run(None)
        assert given_up.load(mirror.settings.terms).pushes == {}
        become_primary(mirror)
        async with relaying(mirror) as relay:
            said = await pushed(mirror, TOOL, mirror.record(TOOL, epoch=2, user="bob"))
            assert "mirrors do not get it: they have a push 2" in said
            assert "repository-fenced" in events(relay)
        assert ids(await stream_of(broker)) == [f"{identity(TOOL)}.1", f"{identity(TOOL)}.2"]

    asyncio.run(story())


def test_a_deleted_repository_refuses_no_promotion(primary: Primary, mirror: Primary) -> None:
    async def story() -> None:
        await first_pushes(primary, 2)
        shutil.rmtree(mirror.path(TOOL))
        with pytest.raises(PromotionRefusedError, match="push 1-2 by alice"):
            await promotion(mirror).run(None, dry_run=True)
        mirror.dynamic.parent.mkdir()
        with dynamic_update.update(mirror.dynamic) as change:
            change.note_purged(identity(TOOL))
        # Another repository has its path.
        mirror.people_create(TOOL, "2f" * 16)
        assert (await promotion(mirror).run(None)).primary == "hgweb1"

    asyncio.run(story())


def test_a_repository_that_is_missing_for_another_reason_refuses_a_promotion(
    primary: Primary, mirror: Primary
) -> None:
    async def story() -> None:
        await first_pushes(primary, 2)
        shutil.rmtree(mirror.path(TOOL))
        mirror.register_all()
        mirror.people_create(TOOL, "2f" * 16)
        # The path by itself would name the other repository.
        with pytest.raises(PromotionRefusedError, match=f"{identity(TOOL)}: push 1-2 by alice"):
            await promotion(mirror).run(None)
        await promotion(mirror, f"{identity(TOOL)}@1-2").run(None)

    asyncio.run(story())


def test_a_parked_repository_whose_pushes_the_brokers_have_dropped_refuses_a_promotion(
    primary: Primary, mirror: Primary, broker: Broker
) -> None:
    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        await first_pushes(primary, 1)
        mirror.register_all(TOOL)
        mirror.settings.state.mkdir(exist_ok=True)
        # As after seven days.
        client = await nats.connect(broker.url)
        await client.jetstream().purge_stream(messages.PUSHES)
        await client.close()
        assert (await promotion(mirror).run(None, dry_run=True)).epoch == 2
        parked = {identity(TOOL): (TOOL, "record 2 belongs to nobody")}
        for state in (
            State("hgweb1", True, 0.0, 0, 1, parked=parked, unserved=tuple(parked)),
            State("hgweb1", True, 0.0, 0, 1, waits=parked),
        ):
            state_file.write(mirror.settings.state, state)
            with pytest.raises(PromotionRefusedError, match="push 2 and later pushes may be lost"):
                await promotion(mirror).run(None)
        # The former primary tells how far it was.
        run = promotion(mirror)
        run._elsewhere = [Known(**position) for position in promote.positions(primary.settings)]
        with pytest.raises(PromotionRefusedError, match="push 2 is known to hg1"):
            await run.run(None)
        await promotion(mirror, f"{TOOL}@2").run(None)

    asyncio.run(story())


def test_a_damaged_registry_keeps_no_operator_from_a_promotion(
    primary: Primary, mirror: Primary
) -> None:
    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        mirror.dynamic.parent.mkdir()
        mirror.dynamic.write_text("{")
        said: list[str] = []
        await promotion(mirror, said=said).run(None)
        assert len([line for line in said if "not a dynamic registry" in line]) == 1

    asyncio.run(story())


def test_a_push_that_only_another_host_has_refuses_the_promotion(
    primary: Primary, mirror: Primary, tmp_path: Path
) -> None:
    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        primary.record(TOOL)
        file = tmp_path / "positions"
        file.write_text(
            "".join(f"{json.dumps(position)}\n" for position in promote.positions(primary.settings))
        )
        run = promotion(mirror)
        run._elsewhere = promote.read_positions(file)
        with pytest.raises(PromotionRefusedError, match="push 2 is known to hg1"):
            await run.run(None)

    asyncio.run(story())


def test_what_people_changed_and_the_mirror_does_not_have_is_named(
    primary: Primary, mirror: Primary
) -> None:
    class Source:
        def repositories(self) -> list[object]:
            return []

        def documents(self) -> tuple[str, tuple[Document, ...]]:
            return "", (Document("tokens", "ab" * 32, 3),)

    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        said: list[str] = []
        run = promotion(mirror, said=said)
        run._source = Source()  # type: ignore[assignment]
        await run.run(None, dry_run=True)
        assert any("does not have the access tokens of hg1 yet" in line for line in said), said

    asyncio.run(story())


@pytest.mark.parametrize("step", ["add", "remember", "lift"])
def test_a_promotion_that_was_killed_is_finished_by_the_next_run(
    primary: Primary,
    mirror: Primary,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    module = broker_terms if step == "add" else host_terms

    class KilledError(Exception):
        pass

    def kill(*_: object) -> None:
        raise KilledError

    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        with monkeypatch.context() as patched:
            patched.setattr(module, step, kill)
            with pytest.raises(KilledError):
                await promotion(mirror).run(None)
        term = await promotion(mirror).run(None)
        assert (term.epoch, term.primary) == (2, "hgweb1")
        assert (await promotion(mirror).run(None)).epoch == 2
        assert host_terms.own(mirror.settings) == (2, "hgweb1")
        assert not (mirror.settings.terms / "fenced").exists()

    asyncio.run(story())


def test_fences_of_repositories_from_an_earlier_time_as_the_primary_end_with_a_promotion(
    primary: Primary, mirror: Primary
) -> None:
    """The promoted mirror was the primary before, and lost a push that it has again by now."""

    async def story() -> None:
        await first_pushes(primary, 2)
        catch_up(mirror, primary)
        tool = identity(TOOL)
        fenced = repository_fences.Fenced(tool, TOOL, 2, "aa" * 32, 1, 1)
        repository_fences.fence(mirror.settings.terms, fenced)
        await promotion(mirror).run(None, dry_run=True)
        assert repository_fences.read(mirror.settings.terms) == {tool: fenced}
        said: list[str] = []
        await promotion(mirror, said=said).run(None)
        assert repository_fences.read(mirror.settings.terms) == {}
        assert f"{TOOL} takes pushes again" in said
        # A fence that the relay of this primary has made since is not decided by a further run.
        repository_fences.fence(mirror.settings.terms, fenced)
        await promotion(mirror).run(None)
        assert repository_fences.read(mirror.settings.terms) == {tool: fenced}

    asyncio.run(story())


def test_a_fence_that_cannot_be_judged_keeps_no_other_one(
    primary: Primary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = primary.settings.terms
    first, other = "0a" * 16, "0b" * 16
    for repository in (first, other):
        repository_fences.fence(
            terms, repository_fences.Fenced(repository, f"team/{repository[:2]}", 2)
        )

    def is_back(_: object, fenced: repository_fences.Fenced) -> bool:
        if fenced.repository == first:
            raise PushlogError("its log is damaged")
        return True

    monkeypatch.setattr(lifting, "is_back", is_back)
    assert lifting.lift_decided(primary.settings) == ["team/0b"]
    assert set(repository_fences.read(terms)) == {first}
    assert "team/0a stays fenced: its log is damaged" in capsys.readouterr().err


def test_a_primary_that_was_restored_begins_a_new_term_in_which_its_pushes_go_on(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        await first_pushes(primary, 1)
        backup = (primary.store(TOOL) / log_file.NAME).read_bytes()
        await first_pushes(primary, 2)
        (primary.store(TOOL) / log_file.NAME).write_bytes(backup)
        with pytest.raises(PromotionRefusedError, match="team/tool: push 2-3 by alice"):
            await new_term(primary).run(None)
        assert (await new_term(primary, "team/tool@2-3").run(None, dry_run=True)).epoch == 2
        assert host_terms.own(primary.settings) == (1, "hg1")
        host_terms.fence(primary.settings, "a promotion that was undone since the backup")
        assert (await new_term(primary, "team/tool@2-3").run(None)).epoch == 2
        assert not (primary.settings.terms / host_terms.FENCED).exists()
        assert host_terms.own(primary.settings) == (2, "hg1")
        streamed = [messages.decode_push(*message) for message in await stream_of(broker)]
        recorded = given_up.load(primary.settings.terms)
        assert recorded.epoch == 2
        assert recorded.pushes == {identity(TOOL): frozenset({(3, streamed[-1].hash)})}
        # Its own positions know the pushes that were given up.
        async with relaying(primary) as relay:
            record = primary.record(TOOL, epoch=2, user="bob")
            await pushed(primary, TOOL, record)
            assert "published" in events(relay)
        last = (await stream_of(broker))[-1]
        assert (messages.decode_push(*last).record.user, record.id) == ("bob", 2)

    asyncio.run(story())


def test_a_new_term_that_was_killed_gives_no_push_up(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def kill(*_: object) -> None:
        raise KilledError

    async def story() -> None:
        await first_pushes(primary, 3)
        log = primary.store(TOOL) / log_file.NAME
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
        with monkeypatch.context() as patched:
            patched.setattr(given_up, "note", kill)
            with pytest.raises(KilledError):
                await new_term(primary, f"{TOOL}@3").run(None)
        # As after a loss of the positions too: the term has begun, and names no push.
        for file in primary.settings.positions.iterdir():
            file.unlink()
        async with relaying(primary) as relay:
            record = primary.record(TOOL, epoch=2, user="bob")
            assert "mirrors do not get it" in await pushed(primary, TOOL, record)
            assert "repository-fenced" in events(relay)
        assert (await new_term(primary, f"{TOOL}@3").run(None)).epoch == 3
        assert lifting.lift_decided(primary.settings) == [TOOL]

    asyncio.run(story())


def test_only_the_primary_begins_a_new_term(primary: Primary, mirror: Primary) -> None:
    async def story() -> None:
        await first_pushes(primary, 1)
        catch_up(mirror, primary)
        await promotion(mirror).run(None)
        with pytest.raises(PromotionRefusedError, match="hgweb1 is the primary of this site"):
            await new_term(primary).run(None)

    asyncio.run(story())

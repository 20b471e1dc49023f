"""A repository that was put back: its pushes, its fence, and the end of it, with a real broker."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest

from hgfleet.core.errors import UsageError
from hgfleet.pushlog import log_file, repository_fence
from hgfleet.pushlog.record import hash_of
from hgfleet.replication import cli, commands
from hgfleet.replication.mirror import status
from hgfleet.replication.promotion import lifting
from hgfleet.replication.promotion.lifting import FenceStaysError
from hgfleet.replication.protocol import connection, messages
from hgfleet.replication.protocol import events as push_events
from hgfleet.replication.terms import broker_terms, given_up, host_terms, repository_fences
from hgfleet.replication.terms.broker_terms import ClaimedError
from hgfleet.replication.terms.losses import parse_accepted
from testing.integration.replication.primary import Primary
from testing.integration.replication.relaying import (
    Mirror,
    events,
    identity,
    ids,
    pushed,
    relaying,
    stream_of,
    until,
)

if TYPE_CHECKING:
    from hgfleet.pushlog.record import Record
    from hgfleet.replication.primary.relay import Relay
    from hgfleet.replication.terms.repository_fences import Fenced
    from testing.integration.support.broker import Broker

TOOL = "team/tool"
ID = identity(TOOL)
RUNBOOK = Path(__file__).resolve().parents[3] / "docs/runbooks/hgfleet-relay.md"


@pytest.fixture
def primary(tmp_path: Path, broker: Broker) -> Primary:
    made = Primary(tmp_path / "hg1", broker, ("hgweb1",))
    made.add(TOOL, "team/other")
    return made


def log_of(primary: Primary) -> Path:
    return primary.store(TOOL) / log_file.NAME


def put_back(primary: Primary, count: int) -> bytes:
    """Take the last records out of the log; return the whole log."""
    log = log_of(primary)
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:-count]))
    return whole


def fence_of(primary: Primary) -> Fenced:
    fence = repository_fences.find(primary.settings.terms, ID)
    assert fence is not None
    return fence


def is_fenced(relay: Relay, primary: Primary) -> bool:
    """Whether the relay has told of a fence and has written it."""
    is_told = "repository-fenced" in events(relay)
    return is_told and bool(repository_fences.read(primary.settings.terms))


def sentence(primary: Primary) -> str | None:
    """Return why sessions refuse a push to the repository."""
    return repository_fence.refusal(str(primary.settings.terms / "fences"), ID)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_no_push_after_a_loss_is_told_to_be_visible(
    primary: Primary, broker: Broker, count: int, *, is_restarted: bool
) -> None:
    """The mirror shows a push of the number, but not this push."""

    async def story() -> None:
        async with Mirror("hgweb1", broker):
            async with relaying(primary) as relay:
                await until("the lease", lambda: "mirror-joined" in events(relay))
                for _ in range(4):
                    said = await pushed(primary, TOOL, primary.record(TOOL))
                    assert "visible on 1/1 mirrors" in said
                if not is_restarted:
                    await lose(relay)
            if is_restarted:
                put_back(primary, count)
                record = primary.record(TOOL, user="mallo")
                async with relaying(primary) as relay:
                    await until("the lease", lambda: "mirror-joined" in events(relay))
                    await told(relay, record)
        assert ids(await stream_of(broker)) == [f"{ID}.{number}" for number in (1, 2, 3, 4)]

    async def lose(relay: object) -> None:
        put_back(primary, count)
        await told(relay, primary.record(TOOL, user="mallo"))

    async def told(relay: object, record: object) -> None:
        number = 5 - count
        said = await pushed(primary, TOOL, record)  # type: ignore[arg-type]
        assert said == (
            f"push {number} recorded, but mirrors do not get it: they have a push 4 of this "
            "repository that this host lost, and operators have to decide which push stays; keep "
            "your clone"
        )
        assert "repository-fenced" in events(relay)  # type: ignore[arg-type]
        fenced = fence_of(primary)
        assert (fenced.path, fenced.number, fenced.here) == (TOOL, 4, number)
        assert "mirrors have a push 4 of this repository" in str(sentence(primary))

    asyncio.run(story())


def test_a_fence_is_in_the_state_and_outlives_relays_and_pushes(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary):
            for _ in range(3):
                await pushed(primary, TOOL, primary.record(TOOL))
        put_back(primary, 1)
        # Without a push: the first look at the log tells.
        async with relaying(primary, scan_seconds=0.1) as relay:
            await until("it is fenced", lambda: is_fenced(relay, primary))
            state = relay.state()
            assert state["fenced_repositories"] == 1
            assert state["fenced"][ID][0] == TOOL
            assert TOOL in state["problems"]
            assert not status.is_well(state, 0)
            said = status.lines(state, 0)
            assert said[0].startswith(f"{TOOL}: fenced: push 3 (")
            # Others go on.
            assert "fenced" not in await pushed(
                primary, "team/other", primary.record("team/other"), wait=2
            )
        for _ in range(5):
            primary.record(TOOL, user="mallo")
        for file in primary.settings.positions.iterdir():
            file.unlink()
        async with relaying(primary, scan_seconds=0.1) as relay:
            await until("it is known", lambda: relay.state()["fenced_repositories"] == 1)
            record = primary.record(TOOL, user="mallo")
            assert "mirrors do not get it" in await pushed(primary, TOOL, record)
        published = ids(await stream_of(broker))
        assert published.count(f"{ID}.3") == 1
        assert f"{ID}.4" not in published

    asyncio.run(story())


def test_a_push_that_was_brought_back_lifts_the_fence_by_a_command(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            for _ in range(3):
                await pushed(primary, TOOL, primary.record(TOOL))
            whole = put_back(primary, 2)
            await until("it is fenced", lambda: is_fenced(relay, primary))
            log_of(primary).write_bytes(whole)
            # The fence does not go by itself.
            said = await pushed(primary, TOOL, primary.record(TOOL))
            assert "mirrors do not get it" in said
            assert sentence(primary) is not None
            fenced = lifting.named(primary.settings, TOOL)
            assert await lifting.lift(primary.settings, None, fenced, ()) is None
            assert sentence(primary) is None
            await until(
                "it is published", lambda: (at := relay.positions.get(ID)) and at.tip.id == 4
            )
            await until("it is told", lambda: "fence-lifted" in events(relay))
        assert ids(await stream_of(broker)) == [f"{ID}.{number}" for number in (1, 2, 3, 4)]
        assert host_terms.own(primary.settings) == (1, "hg1")

    asyncio.run(story())


def bring_back(root: Path) -> None:
    """Run the commands of the runbook that copy the mirror's files, on hosts below a folder."""
    section = RUNBOOK.read_text().partition("**Bring it back.**")[2].partition("**Give it up.**")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ssh ")]
    copying = [line for line in lines if "hgfleet " not in line]
    assert copying
    script = "\n".join(
        [
            "set -e -o pipefail",
            'ssh() { local host=$1; shift; sh -c "${*//\\/srv\\/hg/$ROOT\\/$host}"; }',
            *copying,
        ]
    )
    subprocess.run(
        ["bash", "-c", script], env={"PATH": "/usr/bin:/bin", "ROOT": str(root)}, check=True
    )


@pytest.mark.parametrize("has_bookmarks", [False, True])
def test_a_push_that_the_runbook_brings_back_has_its_bookmarks(
    primary: Primary, tmp_path: Path, *, has_bookmarks: bool
) -> None:
    """Bookmarks are not in the store, and a resync of mirrors would spread older bookmarks."""

    def push(before: str | None) -> Record:
        node = primary.commit(TOOL, "file", f"after {before}")
        if not has_bookmarks:
            return primary.record(TOOL, (node,))
        primary.hg_in(TOOL, "bookmark", "--force", "--inactive", "--rev", node, "main")
        return primary.record(TOOL, (node,), bookmarks=(("main", before, node),))

    def main() -> str:
        return primary.hg_in(TOOL, "log", "--rev", "main", "--template", "{node}")

    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            first = push(None)
            await pushed(primary, TOOL, first)
            shutil.copytree(primary.path(TOOL), tmp_path / "backup")
            last = push(first.changesets[0])
            await pushed(primary, TOOL, last)
            shutil.copytree(primary.path(TOOL), tmp_path / "hgweb1/repos" / TOOL)
            shutil.rmtree(primary.path(TOOL))
            shutil.copytree(tmp_path / "backup", primary.path(TOOL))
            await until("it is fenced", lambda: is_fenced(relay, primary))
            fenced = lifting.named(primary.settings, TOOL)
            if has_bookmarks:
                bring_back(tmp_path)
                # As if only the store had been copied.
                shutil.copy(tmp_path / "backup/.hg/bookmarks", primary.path(TOOL) / ".hg")
                with pytest.raises(FenceStaysError, match=r"'main'.*copy `\.hg/bookmarks`"):
                    await lifting.lift(primary.settings, None, fenced, ())
                assert lifting.lift_decided(primary.settings) == []
                assert main() == first.changesets[0]
                shutil.rmtree(primary.path(TOOL) / ".hg/store.before")
            bring_back(tmp_path)
            assert await lifting.lift(primary.settings, None, fenced, ()) is None
            assert sentence(primary) is None
            if has_bookmarks:
                assert main() == last.changesets[0]
            await until("it is told", lambda: "fence-lifted" in events(relay))

    asyncio.run(story())


def test_pushes_are_given_up_by_name_and_begin_a_new_term(primary: Primary, broker: Broker) -> None:
    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            for _ in range(3):
                await pushed(primary, TOOL, primary.record(TOOL))
            put_back(primary, 2)
            await until("it is fenced", lambda: is_fenced(relay, primary))
            settings, fenced = primary.settings, fence_of(primary)
            for accepted in ((), ("team/tool@3",), ("team/other@2-3",)):
                losses = [parse_accepted(text) for text in accepted]
                with pytest.raises(FenceStaysError, match="--accept-loss team/tool@2-3"):
                    await lifting.lift(settings, None, fenced, losses)
            assert sentence(primary) is not None
            term = await lifting.lift(settings, None, fenced, [parse_accepted("team/tool@2-3")])
            assert term is not None
            assert (term.epoch, host_terms.own(settings)) == (2, (2, "hg1"))
            assert given_up.load(settings.terms).names(ID, 3, fenced.hash)
            await until("the relay heard", lambda: relay.broker.guard.epoch == 2)
            record = primary.record(TOOL, epoch=2, user="bob")
            said = await pushed(primary, TOOL, record)
            # No fence is told of any more, and no mirror has a lease.
            assert said.startswith("push 2 recorded; visible on 0/1 mirrors")
            # A second loss is fenced again.
            put_back(primary, 1)
            await until("it is fenced", lambda: events(relay).count("repository-fenced") == 2)
        sent = await stream_of(broker)
        assert ids(sent) == [f"{ID}.1", f"{ID}.2", f"{ID}.3", f"{ID}.2.2"]
        assert messages.decode_push(*sent[-1]).record.user == "bob"

    asyncio.run(story())


async def begin_as_the_release_before(primary: Primary, broker: Broker, epoch: int) -> None:
    """Begin a term, and write no file of given up pushes."""
    client = await nats.connect(broker.url)
    api = client.jetstream()
    term = broker_terms.made(epoch, "hg1", "ssh://hg@hg1")
    await broker_terms.add(api, term, (await broker_terms.last(api)).sequence)
    await client.close()
    host_terms.remember(primary.settings, term)


def test_a_lift_fences_no_push_that_the_release_before_gave_up(
    primary: Primary, broker: Broker
) -> None:
    other = "team/other"

    async def story() -> None:
        async with relaying(primary):
            for _ in range(3):
                await pushed(primary, TOOL, primary.record(TOOL))
        put_back(primary, 1)
        await begin_as_the_release_before(primary, broker, 2)
        for file in primary.settings.positions.iterdir():
            file.unlink()
        log = primary.store(other) / log_file.NAME
        async with relaying(primary, scan_seconds=0.1) as relay:
            for _ in range(2):
                await pushed(primary, other, primary.record(other, epoch=2))
            log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
            await until("it is fenced", lambda: is_fenced(relay, primary))
            fenced = lifting.named(primary.settings, other)
            await lifting.lift(primary.settings, None, fenced, [parse_accepted(f"{other}@2")])
        for file in primary.settings.positions.iterdir():
            file.unlink()
        async with relaying(primary) as relay:
            record = primary.record(TOOL, epoch=3, user="bob")
            assert "mirrors do not get it" not in await pushed(primary, TOOL, record)
            assert "repository-fenced" not in events(relay)
        assert messages.decode_push(*(await stream_of(broker))[-1]).record == record

    asyncio.run(story())


def test_a_loss_after_an_upgrade_is_fenced_where_the_release_before_began_the_term(
    primary: Primary, broker: Broker
) -> None:
    """The relay names what that term gave up, once: a push that is lost later is fenced."""
    other, third = "team/other", "team/third"
    primary.add(third)
    primary.register_all(TOOL, other, third)

    async def story() -> None:
        async with relaying(primary):
            for path in (TOOL, other, third):
                for _ in range(3):
                    await pushed(primary, path, primary.record(path))
        put_back(primary, 1)
        fenced = repository_fences.Fenced(identity(third), third, 3, "", 1, 2)
        repository_fences.fence(primary.settings.terms, fenced)
        await begin_as_the_release_before(primary, broker, 2)
        gave_up = (await stream_of(broker))[2]
        for file in primary.settings.positions.iterdir():
            file.unlink()
        async with relaying(primary) as relay:
            assert "former-terms-named" in events(relay)
        recorded = given_up.load(primary.settings.terms)
        record = messages.decode_push(*gave_up).record
        assert recorded == given_up.GivenUp(2, {ID: frozenset({(3, hash_of(record.line()))})})
        # The power goes, and takes a push of the first term and the positions.
        log = primary.store(other) / log_file.NAME
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
        for file in primary.settings.positions.iterdir():
            file.unlink()
        async with relaying(primary, scan_seconds=0.1) as relay:
            assert "former-terms-named" not in events(relay)
            await until("it is fenced", lambda: is_fenced(relay, primary))
            record = primary.record(TOOL, epoch=2, user="bob")
            assert "mirrors do not get it" not in await pushed(primary, TOOL, record)
        fences = repository_fences.read(primary.settings.terms)
        assert {fence.path for fence in fences.values()} == {other, third}

    asyncio.run(story())


def test_two_lifts_at_once_lose_no_push_that_was_given_up(primary: Primary) -> None:
    paths = (TOOL, "team/other")

    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1):
            for path in paths:
                for _ in range(3):
                    await pushed(primary, path, primary.record(path))
                log = primary.store(path) / log_file.NAME
                log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))

            def are_fenced() -> bool:
                return len(repository_fences.read(primary.settings.terms)) == len(paths)

            await until("both are fenced", are_fenced)
            settings = primary.settings
            lifts = [
                lifting.lift(
                    settings, None, lifting.named(settings, path), [parse_accepted(f"{path}@3")]
                )
                for path in paths
            ]
            terms = await asyncio.gather(*lifts)
            assert sorted(term.epoch for term in terms if term) == [2, 3]
            assert host_terms.own(settings) == (3, "hg1")
            assert given_up.load(settings.terms).pushes.keys() == set(map(identity, paths))
            assert repository_fences.read(settings.terms) == {}

    asyncio.run(story())


@pytest.mark.parametrize("step", ["add", "remember"])
def test_a_lift_that_ends_before_its_term_gives_no_push_up(
    primary: Primary, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The broker is away, another host was faster, or the process is killed."""
    claimed = ClaimedError("another host has begun a term at the same moment")

    def refuse(*_: object) -> None:
        raise claimed

    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            for _ in range(3):
                await pushed(primary, TOOL, primary.record(TOOL))
            put_back(primary, 1)
            await until("it is fenced", lambda: is_fenced(relay, primary))
            settings, fenced = primary.settings, fence_of(primary)
            accepted = [parse_accepted("team/tool@3")]
            with monkeypatch.context() as patched:
                patched.setattr(broker_terms if step == "add" else host_terms, step, refuse)
                with pytest.raises(ClaimedError):
                    await lifting.lift(settings, None, fenced, accepted)
            assert not given_up.load(settings.terms).names(ID, 3, fenced.hash)
            assert not lifting.lift_decided(settings)
            assert sentence(primary) is not None
            term = await lifting.lift(settings, None, fenced, accepted)
            assert term is not None
            assert given_up.load(settings.terms).names(ID, 3, fenced.hash)
            assert sentence(primary) is None
            await until("the relay heard", lambda: relay.broker.guard.epoch == term.epoch)
            record = primary.record(TOOL, epoch=term.epoch, user="bob")
            said = await pushed(primary, TOOL, record)
            assert said.startswith("push 3 recorded; visible on 0/1 mirrors")

    asyncio.run(story())


def test_pushes_between_a_loss_and_its_fence_have_events_after_the_lift(
    primary: Primary, broker: Broker
) -> None:
    def record(user: str) -> Record:
        return primary.record(TOOL, user=user, time=int(time.time() * 1000))

    async def story() -> None:
        async with Mirror("hgweb1", broker):
            async with relaying(primary) as relay:
                await until("the lease", lambda: "mirror-joined" in events(relay))
                for _ in range(3):
                    await pushed(primary, TOOL, record("alice"))
                await until("3 events", lambda: events(relay).count("announced") == 3)
            put_back(primary, 2)
            made = [record("bob") for _ in range(2)]
            async with relaying(primary, scan_seconds=0.1) as relay:
                await until("it is fenced", lambda: "repository-fenced" in events(relay))
                losses = [parse_accepted("team/tool@3")]
                await lifting.lift(primary.settings, None, fence_of(primary), losses)
                await until("2 more events", lambda: events(relay).count("announced") == 2)
        sent = await stream_of(broker, messages.EVENTS)
        assert ids(sent) == [f"{ID}.{number}" for number in (1, 2, 3, 2, 3)]
        assert [json.loads(body)["user"] for _, body in sent] == ["alice"] * 3 + ["bob"] * 2
        names = [push_events.decode(body).id for _, body in sent]
        assert names[:3] == [f"{ID}.{number}" for number in (1, 2, 3)]
        hashes = [hash_of(push.line())[:16] for push in made]
        assert names[3:] == [f"{ID}.{n}.1.{hash_}" for n, hash_ in zip((2, 3), hashes, strict=True)]

    asyncio.run(story())


def test_a_repository_without_a_fence_is_named_with_those_that_have_one(primary: Primary) -> None:
    with pytest.raises(UsageError, match="expected a fenced repository of this host: none"):
        lifting.named(primary.settings, TOOL)


def test_a_disk_that_takes_no_fence_is_told_and_the_fence_follows(
    primary: Primary, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, is_full = repository_fences.fence, [True]

    def fence(terms: Path, fenced: Fenced) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        original(terms, fenced)

    monkeypatch.setattr(repository_fences, "fence", fence)

    async def story() -> None:
        async with relaying(primary, scan_seconds=0.1) as relay:
            for _ in range(2):
                await pushed(primary, TOOL, primary.record(TOOL))
            put_back(primary, 1)
            record = primary.record(TOOL, user="mallo")
            assert "mirrors do not get it" in await pushed(primary, TOOL, record)
            state = relay.state()
            assert "No space left" in state["problems"]["fences"]
            assert state["fenced_repositories"] == 1
            is_full.clear()
            await until("it is written", lambda: sentence(primary) is not None)
            await until("it is over", lambda: "fences" not in relay.state()["problems"])
        assert ids(await stream_of(broker)) == [f"{ID}.1", f"{ID}.2"]

    asyncio.run(story())


def test_a_full_disk_ends_no_relay_and_its_positions_follow(
    primary: Primary, broker: Broker
) -> None:
    async def story() -> None:
        async with relaying(primary) as relay:
            await pushed(primary, TOOL, primary.record(TOOL))
            file = relay.positions._file
            assert file is not None
            (pages,) = file.execute("pragma page_count").fetchone()
            file.execute(f"pragma max_page_count = {pages}")
            # More than the pages of the file have room for.
            for number in range(200):
                relay.positions.note(f"fact {number}", "x" * 100)
            said = await pushed(primary, TOOL, primary.record(TOOL))
            assert "replication is down" not in said
            await until("it is told", lambda: "positions" in relay.state()["problems"])
            assert "database or disk is full" in relay.state()["problems"]["positions"]
            file.execute("pragma max_page_count = 100000")
            await until("it is over", lambda: "positions" not in relay.state()["problems"])
        async with relaying(primary) as relay:
            position = relay.positions.get(ID)
            assert position is not None
            assert position.tip.id == 2
            assert relay.positions.fact("fact 199") == "x" * 100
        assert ids(await stream_of(broker)) == [f"{ID}.1", f"{ID}.2"]

    asyncio.run(story())


def test_operators_list_and_lift_fences_by_commands(
    primary: Primary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "load", lambda _: primary.settings)
    monkeypatch.setattr(connection, "tls", lambda _: None)
    monkeypatch.setattr(commands, "become", lambda _: None)

    def run(*words: str) -> tuple[int, str]:
        parser = argparse.ArgumentParser()
        cli.add_parser(parser.add_subparsers())
        options = parser.parse_args(["replication", *words])
        code = options.run(options)
        return code, capsys.readouterr().out

    async def story() -> None:
        assert run("fences") == (0, "no repository is fenced\n")
        async with relaying(primary, scan_seconds=0.1) as relay:
            for _ in range(3):
                await pushed(primary, TOOL, primary.record(TOOL))
            whole = put_back(primary, 1)
            await until("it is fenced", lambda: is_fenced(relay, primary))
            code, said = run("fences")
            assert code == 65
            assert said.startswith(f"{TOOL}: fenced: push 3 (")
            assert json.loads(run("fences", "--json")[1])["repository"] == ID
            log_of(primary).write_bytes(whole)
            wanted = (0, f"{TOOL} takes pushes again\n")
            assert await asyncio.to_thread(run, "lift", TOOL) == wanted
            await until("it is told", lambda: "fence-lifted" in events(relay))
            put_back(primary, 1)
            await until("it is fenced", lambda: events(relay).count("repository-fenced") == 2)
            # A restore of all: the new term gives up the named pushes, and lifts the fences.
            code, said = await asyncio.to_thread(run, "new-term", "--accept-loss", f"{TOOL}@3")
            assert code == 0
            assert f"{TOOL} takes pushes again" in said
            assert "epoch 2 of hg1 has begun" in said
            record = primary.record(TOOL, epoch=2)
            assert (await pushed(primary, TOOL, record)).startswith("push 3 recorded; visible")

    asyncio.run(story())

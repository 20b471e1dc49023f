"""The applier of a mirror, with a real broker and the primary's source."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import nats
import pytest

from hgfleet.core import identity
from hgfleet.core.errors import RegistryError
from hgfleet.pushlog import log_file
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.replication.mirror.verify import Finding, Verification
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import (
    Confirmed,
    PushMessage,
    decode_applied,
    decode_lease,
)
from hgfleet.replication.repositories.readers_gate import stamp
from hgfleet.replication.source.client import SourceClient
from testing.integration.support import hosts
from testing.integration.support.applier_process import (
    ApplierProcess,
    messages_of,
    publish,
    publish_hint,
    wait_for,
)
from testing.integration.support.primary import Primary, create, state
from testing.integration.support.site import HG, HGEXT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.integration.support.broker import Broker

NAMES = ("a", "b", "team/c")
CREATED = "2026-11-21T00:00:00Z"

# As the role `mercurial` writes it on a mirror.
MIRROR = f"""\
[extensions]
access = {HGEXT}/access.py
access:required = yes
policies = {HGEXT}/policies.py
policies:required = yes
pushlog = {HGEXT}/pushlog.py
pushlog:required = yes
[hgfleet]
pushlog = yes
replica-of = hg1
"""


class Site:
    """A primary with its source, a broker, and a mirror."""

    def __init__(self, folder: Path, broker: Broker, authority: hosts.Authority) -> None:
        self.broker = broker
        self.host = hosts.Primary(folder / "hg1", authority)
        self.host.declare(*NAMES)
        self.primaries = {
            name: Primary(self.host.path(name), identity=f"{number:032x}")
            for number, name in enumerate(NAMES, 1)
        }
        for name, primary in self.primaries.items():
            self.host.identify(name, primary.identity)
        self.mirror = hosts.Host(folder / "hgweb1", "hgweb1", authority, "https://127.0.0.1:1")
        with self.mirror.hgrc.open("a") as hgrc:
            hgrc.write(MIRROR)
        self.mirror.declare(*NAMES)
        for name in NAMES:
            create(self.mirror.path(name))
            self.configure(name)
        self.applier: ApplierProcess

    def configure(self, name: str) -> None:
        """Write the file of a repository that `hgfleet registry apply` writes."""
        own = self.mirror.path(name) / ".hg/hgrc"
        own.write_text(
            f"[hgfleet]\npath = {name}\nread = public\npush = all\n"
            "[hooks]\npretxnclose.refusing = false\n"
        )

    def prepare(self, folder: Path, source: str) -> None:
        settings = replace(
            self.mirror.settings,
            source=source,
            brokers=(self.broker.url,),
            lease_seconds=1.0,
            hg=folder / "hg",
        )
        folder.mkdir()
        # Commands of hg run in an environment of their own, where a host has hgfleet installed.
        settings.hg.write_text(f'#!/bin/sh\nPYTHONPATH="{HGEXT.parent}" exec "{HG}" "$@"\n')
        settings.hg.chmod(0o755)
        self.applier = ApplierProcess(settings, folder / "applier")

    def publish(self, name: str, after: int = 0) -> None:
        publish(self.broker, messages_of(self.primaries[name], name, after))

    def publish_again(self, name: str) -> None:
        """Publish the pushes again, as a relay does that lost its position and its window."""
        publish(self.broker, messages_of(self.primaries[name], name), again=True)

    def tip(self, name: str) -> int:
        return log_file.tip(self.mirror.path(name) / ".hg/store/pushlog").id

    def shows(self, name: str) -> bool:
        # A record is in the file before its transaction ends.
        journal = self.mirror.path(name) / ".hg/store/journal"
        return not journal.exists() and self.tip(name) == log_file.tip(self.primaries[name].log).id

    def wait(self, *names: str) -> None:
        """Wait until the mirror shows all pushes and nothing is at work."""
        self.applier.wait_for(lambda: all(self.shows(name) for name in names or NAMES))

    def is_equal(self, *names: str) -> bool:
        for name in names or NAMES:
            assert state(self.mirror.path(name)) == state(self.primaries[name].path)
        return True


@pytest.fixture
def site(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("HGRCPATH", "")
    made = Site(tmp_path, broker, hosts.Authority(tmp_path / "ca"))
    publish(broker)
    with made.host.serving() as source:
        made.prepare(tmp_path / "process", source)
        try:
            yield made
        finally:
            made.applier.kill()


def test_pushes_of_all_kinds_reach_the_mirror(site: Site) -> None:
    site.applier.start()
    random = Random(5)
    for name in NAMES:
        for _number in range(10):
            site.primaries[name].push_anything(random)
        site.publish(name)
    site.wait()
    assert site.is_equal()
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert site.applier.state()["parked"] == {}


def test_a_mirror_catches_up_with_what_no_message_brings(site: Site) -> None:
    for _number in range(5):
        site.primaries["a"].push_commits()
    site.applier.start()
    site.wait("a")
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    # Only later messages tell of a gap.
    for _number in range(4):
        site.primaries["a"].push_commits()
    publish(site.broker, messages_of(site.primaries["a"], "a")[-1:])
    site.wait("a")
    assert site.is_equal("a")


def test_a_repository_older_than_its_log_reaches_an_empty_mirror(site: Site) -> None:
    site.primaries["a"].adopt(4)
    site.primaries["a"].push_commits()
    site.publish("a")
    site.applier.start()
    site.wait("a")
    assert site.is_equal("a")


def test_repositories_that_another_process_emptied_are_fetched_again(site: Site) -> None:
    for name in NAMES:
        site.primaries[name].push_commits()
        site.publish(name)
    publish_hint(site.broker)
    site.applier.start()
    site.wait()
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    # No push follows, and neither the registry nor the connection changes.
    shutil.rmtree(site.mirror.path("a"))
    for file in (site.mirror.path("b") / ".hg/store").iterdir():
        if file.is_file() and file.name not in (identity.NAME, "requires"):
            file.unlink()
    shutil.rmtree(site.mirror.path("team/c"))
    create(site.mirror.path("team/c"))
    # In place of the time between two looks.
    publish_hint(site.broker)
    site.wait()
    assert site.is_equal()
    assert "event=repository-emptied" in site.applier.log.read_text()


def test_a_repository_that_cannot_go_on_is_parked_and_the_others_go_on(site: Site) -> None:
    stranger = Primary(site.mirror.path("stranger"), identity=site.primaries["b"].identity)
    with stranger.push():
        stranger.commit(b"of the mirror\n")
    stranger.path.rename(site.mirror.path("kept"))
    before = state(site.mirror.path("kept"))
    for name in ("a", "b"):
        site.primaries[name].push_commits()
        site.primaries[name].push_commits()
        site.publish(name)
    site.applier.start()
    site.wait("a")
    other = site.primaries["b"].identity
    site.applier.wait_for(lambda: other in site.applier.state()["parked"])
    assert site.applier.state()["parked"][other][0] == "b"
    assert site.applier.state()["unserved"] == [other]
    # It came to where the registry has its identity.
    assert state(site.mirror.path("b")) == before
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])


def test_a_mirror_follows_a_new_primary_and_passes_over_pushes_that_were_given_up(
    site: Site,
) -> None:
    primary = site.primaries["a"]
    primary.push_commits()
    site.publish("a")
    site.applier.start()
    site.wait("a")
    last = messages_of(primary, "a")[-1].record
    primary.epoch = 2
    primary.push_commits()
    site.publish("a", last.id)
    site.wait("a")
    lost = replace(last, id=last.id + 2, user="bob")
    publish(site.broker, [PushMessage("a", lost.line(), lost, b"")])
    primary.push_commits()
    site.publish("a", last.id + 1)
    site.wait("a")
    assert site.is_equal("a")
    assert site.applier.state()["parked"] == {}


def test_the_primary_is_told_what_the_mirror_shows_and_confirms_its_lease(site: Site) -> None:
    async def story() -> None:
        client = await nats.connect(site.broker.url)
        leases = await client.subscribe(messages.leases("hgweb1"))
        applied = await client.subscribe(messages.applied("hgweb1"))
        await client.flush()
        site.applier.start()
        site.primaries["a"].push_commits()
        await asyncio.to_thread(site.publish, "a")

        async def next_told() -> object:
            message = await applied.next_msg(120)
            return decode_applied(message.data, message.headers)

        told = await next_told()
        tip = log_file.tip(site.primaries["a"].log)
        assert told == messages.Applied("hgweb1", site.primaries["a"].identity, 1, tip.hash)
        # A message that comes again is told of again: the relay may have missed the answer.
        await asyncio.to_thread(site.publish_again, "a")
        assert await next_told() == told
        # A restarted relay asks; of a repository that is not here there is no answer.
        asked = messages.Asked(("0" * 32, site.primaries["a"].identity))
        await client.publish(messages.asked("hgweb1"), asked.body())
        assert await next_told() == told
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            lease = decode_lease((await leases.next_msg(120)).data)
            confirmed = Confirmed(lease.host, lease.boot, lease.sent, 1.0, lease.caught_up)
            await client.publish(messages.confirmed("hgweb1"), confirmed.body())
            mirror_state = site.applier.state()
            if lease.caught_up and mirror_state.get("lease_until", 0) > lease.sent:
                break
        else:
            pytest.fail(site.applier.log.read_text())
        await client.close()

    asyncio.run(story())
    assert site.is_equal("a")


def test_a_push_that_the_broker_refuses_comes_from_the_source(site: Site) -> None:
    async def story() -> None:
        client = await nats.connect(site.broker.url)
        leases = await client.subscribe(messages.leases("hgweb1"))
        await client.flush()
        site.applier.start()
        site.applier.wait_for(lambda: site.applier.state()["caught_up"])
        site.primaries["a"].push_commits()
        tip = log_file.tip(site.primaries["a"].log)
        assert site.tip("a") == 0
        unsent = (f"{tip.repository}.{tip.id}.{tip.hash}",)
        while not site.tip("a"):
            lease = decode_lease((await leases.next_msg(120)).data)
            confirmed = Confirmed(lease.host, lease.boot, lease.sent, 1.0, True, unsent)
            await client.publish(messages.confirmed("hgweb1"), confirmed.body())
        await client.close()

    asyncio.run(story())
    assert site.is_equal("a")


def test_pushes_go_on_when_the_broker_returns(site: Site) -> None:
    site.applier.start()
    site.primaries["a"].push_commits()
    site.publish("a")
    site.wait("a")
    # No relay confirms a heartbeat here: readers go on while the primary is down.
    site.applier.wait_for(lambda: site.applier.state()["lease_until"] > time.time())
    site.broker.kill()
    site.applier.wait_for(lambda: site.applier.state()["broker"])
    site.applier.wait_for(lambda: site.applier.state()["lease_until"] < time.time())
    site.broker.start()
    site.primaries["a"].push_commits()
    site.publish("a", after=1)
    site.wait("a")
    assert site.is_equal("a")
    site.applier.wait_for(lambda: not site.applier.state()["broker"])


def test_the_applier_ends_in_order(site: Site) -> None:
    site.applier.start()
    for name in NAMES:
        site.primaries[name].push_commits(20)
        site.publish(name)
    site.applier.wait_for(lambda: any(site.tip(name) for name in NAMES))
    assert site.applier.stop() == 0, site.applier.log.read_text()
    for name in NAMES:
        assert not (site.mirror.path(name) / ".hg/store/journal").exists()
    site.applier.start()
    site.wait()
    assert site.is_equal()


def test_kills_at_random_points_lose_nothing_and_apply_nothing_twice(site: Site) -> None:
    random = Random(23)
    site.applier.start()
    for number in range(100):
        name = random.choice(NAMES)
        after = log_file.tip(site.primaries[name].log).id
        site.primaries[name].push_anything(random)
        site.publish(name, after)
        if number % 12 == 11:
            # Somewhere in the work on the published pushes: it depends on the machine.
            wanted = random.choice([site.tip(name), site.tip(name) + 1])
            wait_for(lambda at=wanted, of=name: site.tip(of) >= at or site.shows(of))
            site.applier.kill()
            site.applier.start()
    site.wait()
    assert site.is_equal()
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert site.applier.state()["parked"] == {}


def test_a_damaged_repository_is_made_anew_beside_and_exchanged(site: Site) -> None:
    site.primaries["a"].push_commits(8)
    site.publish("a")
    site.applier.start()
    site.wait("a")
    site.applier.kill()
    (site.mirror.path("a") / ".hg/store/00manifest.i").write_bytes(b"")
    site.primaries["a"].push_commits(1)
    site.publish("a", after=1)
    site.applier.start()
    site.wait("a")
    assert site.is_equal("a")
    name = f"old-{site.primaries['a'].identity}-*"
    assert list(site.mirror.path(".replication").glob(name))
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert site.applier.state()["parked"] == {}
    assert "kind=corruption" in site.applier.log.read_text()


def test_a_worker_that_ends_is_replaced(site: Site) -> None:
    site.primaries["a"].push_commits()
    site.publish("a")
    site.applier.start()
    site.wait("a")
    # The workers are at no job: the next job finds a broken pipe.
    for worker in site.applier.workers():
        os.kill(worker, signal.SIGKILL)
    site.primaries["a"].push_commits()
    site.publish("a", after=1)
    site.wait("a")
    assert site.is_equal("a")
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert site.applier.state()["parked"] == {}


def test_a_user_repository_arrives_as_the_registry_has_it(site: Site) -> None:
    site.applier.start()
    path = "people/bob/x"
    own = Primary(site.host.path(path), identity="ee" * 16)
    own.push_commits(2)
    with dynamic_update.update(site.host.dynamic) as entries:
        entries[path] = Entry("bob", created=CREATED, read=(), identity=own.identity)
    publish(site.broker, messages_of(own, path))
    site.applier.wait_for(lambda: site.tip(path) == 1)
    assert state(site.mirror.path(path)) == state(own.path)
    effective = user_repositories.load_effective(site.mirror.registry, site.mirror.dynamic)
    assert effective.repositories[path].read == ()
    assert site.applier.state()["parked"] == {}


@contextlib.contextmanager
def held_documents() -> Iterator[None]:
    """Have the source list no documents until the end."""

    def refuse(_documents: object) -> None:
        raise RegistryError("the documents are held")

    # The source is in this process.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hgfleet.replication.documents.document_files.Documents.all", refuse)
        yield


class UserRepository:
    """A user repository of the primary that everyone may read."""

    path = "people/bob/x"

    def __init__(self, site: Site) -> None:
        self.site = site
        self.own = Primary(site.host.path(self.path), identity="ee" * 16)
        self.read_by("public")

    def read_by(self, readers: str | tuple[str, ...]) -> None:
        with dynamic_update.update(self.site.host.dynamic) as entries:
            entries[self.path] = Entry(
                "bob", created=CREATED, read=readers, identity=self.own.identity
            )

    def push(self, count: int = 1) -> list[PushMessage]:
        """Push; return the messages, with the present registry."""
        before = log_file.tip(self.own.log).id
        for _number in range(count):
            self.own.push_commits()
        now = stamp(self.site.host.dynamic.read_bytes())
        return messages_of(self.own, self.path, before, now)

    def readers_here(self) -> object:
        """The readers on the mirror."""
        mirror = self.site.mirror
        registry = user_repositories.load_effective(mirror.registry, mirror.dynamic)
        return registry.repositories[self.path].read

    def waits(self, number: int) -> None:
        """Wait until the mirror has a push and does not apply it."""
        log = self.site.applier.log
        self.site.applier.wait_for(
            lambda: self.site.tip(self.path) >= number or "kind=readers" in log.read_text()
        )
        assert self.site.tip(self.path) < number

    def arrives(self, number: int) -> None:
        """Wait for a push that no anonymous reader may see on the mirror from its first moment."""

        def is_here() -> bool:
            if self.site.tip(self.path) < number:
                return False
            assert self.readers_here() == ()
            return True

        self.site.applier.wait_for(is_here)


def test_a_push_arrives_after_the_readers_that_it_was_made_under(site: Site) -> None:
    repository = UserRepository(site)
    publish(site.broker, repository.push())
    site.applier.start()
    site.applier.wait_for(lambda: site.tip(repository.path) == 1)
    assert repository.readers_here() == "public"
    with held_documents():
        repository.read_by(())
        publish(site.broker, repository.push())
        repository.waits(2)
    repository.arrives(2)
    # A registry that is newer than the push is no obstacle.
    older = repository.push()
    with dynamic_update.update(site.host.dynamic) as entries:
        entries["people/bob/y"] = Entry("bob", created=CREATED, read=(), identity="ff" * 16)
    publish(site.broker, older)
    repository.arrives(3)
    assert site.applier.state()["parked"] == {}


def test_pushes_from_the_source_arrive_after_their_readers(site: Site) -> None:
    repository = UserRepository(site)
    publish(site.broker, repository.push())
    site.applier.start()
    site.applier.wait_for(lambda: site.tip(repository.path) == 1)
    # The message has a gap before it; the source has a push after it, made under other readers.
    last = repository.push(2)[-1:]
    with held_documents():
        repository.read_by(())
        repository.push()
        publish(site.broker, last)
        repository.waits(2)
    repository.arrives(4)


def test_a_push_waits_for_its_readers_while_no_documents_arrive(site: Site) -> None:
    repository = UserRepository(site)
    publish(site.broker, repository.push())
    site.applier.start()
    site.applier.wait_for(lambda: site.tip(repository.path) == 1)
    registry = site.host.dynamic.read_bytes()
    repository.read_by(())
    narrowed = site.host.dynamic.read_bytes()
    pushes = repository.push()
    # As a registry of the primary that cannot be read: the documents do not arrive.
    site.host.dynamic.write_bytes(b"{")
    site.primaries["a"].push_commits()
    publish(site.broker, [*pushes, *messages_of(site.primaries["a"], "a", 0, "0" * 16)])
    # A repository of the inventory has no readers there, and goes on.
    site.wait("a")
    repository.waits(2)
    assert site.mirror.dynamic.read_bytes() == registry
    site.host.dynamic.write_bytes(narrowed)
    repository.arrives(2)
    assert site.applier.state()["parked"] == {}


def test_changesets_that_an_operator_strips_leave_the_mirror(site: Site) -> None:
    own = site.primaries["a"]
    own.push_commits(3)
    site.publish("a")
    site.applier.start()
    site.wait("a")
    with site.host.hgrc.open("a") as hgrc:
        hgrc.write(f"[extensions]\npushlog = {HGEXT}/pushlog.py\n[hgfleet]\npushlog = yes\n")
    (own.path / ".hg/hgrc").write_text("[hgfleet]\npath = a\n")
    site.host.hg_in("a", "debugstrip", "--no-backup", "--hidden", "tip")
    # A push that comes before the removal is known on the mirror follows it.
    site.host.commit("a", "file", "after")
    assert {entry.record.kind for entry in own.entries()[1:]} >= {"strip"}
    publish(
        site.broker,
        [PushMessage("a", e.line, e.record) for e in own.entries() if e.record.id > 1],
    )
    site.wait("a")
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    settings = site.applier.settings
    results = Verification(settings, SourceClient(settings)).run(["a"], lambda _: None, 60.0)
    assert [result.finding for result in results] == [Finding.EQUAL], results
    assert state(site.mirror.path("a")) == state(own.path)
    assert len(state(own.path)["changesets"]) == 3
    assert site.applier.state()["parked"] == {}


def test_a_push_that_is_applied_is_one_line_with_the_session_that_its_message_names(
    site: Site,
) -> None:
    primary = site.primaries["a"]
    primary.push_commits()
    primary.push_commits()
    first, second = messages_of(primary, "a")
    publish(site.broker, [replace(first, session="1f2e3d4c5b6a7988"), second])
    site.applier.start()
    site.wait("a")

    def lines() -> list[str]:
        said = site.applier.log.read_text().splitlines()
        return [line for line in said if line.startswith("event=applied repository=a ")]

    site.applier.wait_for(lambda: lines() and f".{second.record.id} " in lines()[-1])
    traced = [line for line in lines() if "id=1f2e3d4c5b6a7988" in line]
    assert len(traced) == 1, lines()
    assert f" push={primary.identity}.{first.record.id} " in traced[0]


class People:
    """Changes of people at the primary, in registry and folders at once."""

    def __init__(self, site: Site) -> None:
        self.site, self.made = site, 0

    def create(self, path: str, read: str | tuple[str, ...]) -> Primary:
        self.made += 1
        own = Primary(self.site.host.path(path), identity=f"{self.made:x}e" * 16)
        with dynamic_update.update(self.site.host.dynamic) as entries:
            entries[path] = Entry("bob", created=CREATED, read=read, identity=own.identity)
        return own

    def rename(self, old: str, new: str) -> None:
        host = self.site.host
        with dynamic_update.update(host.dynamic) as entries:
            entries[new] = entries[old]
            del entries[old]
        host.path(old).rename(host.path(new))

    def delete(self, path: str) -> None:
        host = self.site.host
        with dynamic_update.update(host.dynamic) as entries:
            entries.note_purged(entries[path].identity)
            del entries[path]
        host.path(path).rename(host.root / f"gone-{self.made}")

    def messages(self, own: Primary, path: str) -> list[PushMessage]:
        return messages_of(own, path, 0, stamp(self.site.host.dynamic.read_bytes()))


def test_a_private_repository_that_moved_is_not_at_its_path_of_then(site: Site) -> None:
    """Its messages name its former path, which a public repository has now."""
    people = People(site)
    private = people.create("people/bob/a", ())
    private.push_commits()
    said = people.messages(private, "people/bob/a")
    people.rename("people/bob/a", "people/bob/b")
    private.path = site.host.path("people/bob/b")
    public = people.create("people/bob/a", "public")
    publish(site.broker, said)
    site.applier.start()
    site.applier.wait_for(lambda: site.tip("people/bob/b") == 1)
    site.applier.wait_for(lambda: site.mirror.path("people/bob/a").exists())
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert site.tip("people/bob/a") == 0
    assert state(site.mirror.path("people/bob/a"))["changesets"] == []
    public.push_commits()
    publish(site.broker, people.messages(public, "people/bob/a"))
    site.applier.wait_for(lambda: site.tip("people/bob/a") == 1)
    assert state(site.mirror.path("people/bob/a")) == state(site.host.path("people/bob/a"))
    assert state(site.mirror.path("people/bob/b")) == state(site.host.path("people/bob/b"))


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 2), (1, 3), (0, 1), (2, 0)])
def test_a_repository_made_again_under_its_name_arrives(
    site: Site, before: int, after: int
) -> None:
    people = People(site)
    site.applier.start()
    old = people.create("people/bob/x", "public")
    for _ in range(before):
        old.push_commits()
    publish(site.broker, people.messages(old, "people/bob/x"))
    here = site.mirror.path("people/bob/x")
    site.applier.wait_for(lambda: here.exists() and site.tip("people/bob/x") == before)
    people.delete("people/bob/x")
    new = people.create("people/bob/x", "public")
    for _ in range(after):
        new.push_commits(2)
    publish(site.broker, people.messages(new, "people/bob/x"))
    site.applier.wait_for(
        lambda: identity.of(here) == new.identity and site.tip("people/bob/x") == after
    )
    assert state(here) == state(site.host.path("people/bob/x"))
    site.applier.wait_for(lambda: not list(site.mirror.repos.glob(".replication/*")))
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    assert site.applier.state()["parked"] == {}


def test_a_repository_that_the_primary_cannot_read_takes_itself_out_of_service(
    site: Site,
) -> None:
    site.primaries["a"].push_commits()
    site.primaries["b"].push_commits()
    (site.primaries["b"].path / ".hg/store/00changelog.i").write_bytes(b"\0" * 64)
    site.applier.start()
    site.wait("a")
    broken = site.primaries["b"].identity
    site.applier.wait_for(lambda: site.applier.state().get("unserved") == [broken])
    site.applier.wait_for(lambda: site.applier.state()["caught_up"])
    # The others go on, also those that the source has to bring.
    site.primaries["team/c"].push_commits()
    site.primaries["team/c"].push_commits()
    publish(site.broker, messages_of(site.primaries["team/c"], "team/c")[-1:])
    site.wait("team/c")
    assert site.applier.state()["source"] == ""

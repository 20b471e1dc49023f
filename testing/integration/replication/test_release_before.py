"""Files of the release before identities are understood by this one, or refused with the way out.

`release_before.json` has the data that the code of that release wrote: messages of two pushes with
their changegroups, and a push too large for a message; the registry, tokens, manifests and
positions of its primary; and messages, state and requests of its mirrors and sessions. None of it
names a repository by an identity, but for push logs.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from hgfleet.auth import token_file, token_sweep
from hgfleet.bundles.decide import advertised, manifest
from hgfleet.bundles.steps import adoption
from hgfleet.core import identity
from hgfleet.directory.person_state import ENABLED, PersonState
from hgfleet.pushlog.record import hash_of
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.dynamic_update import Update
from hgfleet.registry.model.registry import Registry
from hgfleet.registry.provision import identities
from hgfleet.replication.documents import documents
from hgfleet.replication.mirror import state_file
from hgfleet.replication.mirror.failures import Kind
from hgfleet.replication.mirror.jobs import Job
from hgfleet.replication.mirror.worker import Worker
from hgfleet.replication.primary import wake_server
from hgfleet.replication.primary.positions import FILE, Positions
from hgfleet.replication.protocol import events, messages
from hgfleet.replication.protocol.messages import Applied, Brought, Lease, PushMessage
from hgfleet.replication.repositories.readers_gate import Gate
from hgfleet.replication.repositories.registry_paths import Known, RegistryPaths
from testing.integration.support import hosts
from testing.integration.support.primary import create

if TYPE_CHECKING:
    from hgfleet.replication.mirror.jobs import Result

BEFORE: dict[str, Any] = json.loads(
    Path(__file__).with_name("release_before.json").read_text("utf-8")
)
IDENTITY, PATH = BEFORE["identity"], BEFORE["path"]
OPEN = "people/bob/open"
URLS = {"open": "https://open.example/b"}


def pushes() -> list[PushMessage]:
    return [
        messages.decode_push(push["headers"], base64.b64decode(push["body"]))
        for push in BEFORE["pushes"]
    ]


NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
"""A day after the release before wrote all this."""


class Mirror:
    """A mirror with the registry of the release before, updated before its primary."""

    def __init__(self, folder: Path) -> None:
        self.host = hosts.Host(folder / "hgweb1", "hgweb1", hosts.Authority(folder / "ca"))
        self.place = self.host.path(PATH)
        create(self.place)
        self.host.dynamic.write_text(BEFORE["registry"])
        self.paths = RegistryPaths(self.host.settings)
        away: Any = SimpleNamespace(registry_stamp=lambda: pytest.fail("the source is not needed"))
        self.worker = Worker(
            self.host.repos,
            self.paths,
            source=None,
            gate=Gate(self.host.settings, away, self.paths),
        )

    def has_applied(self, push: PushMessage) -> None:
        """Have a push from before the update, which left no identity but in the push log."""
        (self.place / identity.FILE).write_text(identity.text(IDENTITY))
        known: Any = SimpleNamespace(read=lambda: Known({IDENTITY: PATH}))
        job = Job(IDENTITY, ((push.line, push.changegroup),))
        assert Worker(self.host.repos, known, None).run(job).failure is None
        (self.place / identity.FILE).unlink()

    def run(self, push: PushMessage) -> Result:
        stamps = frozenset({push.registry})
        return self.worker.run(Job(IDENTITY, ((push.line, push.changegroup),), stamps=stamps))


def test_a_push_of_the_release_before_is_applied(tmp_path: Path) -> None:
    first, second = pushes()
    mirror = Mirror(tmp_path)
    mirror.has_applied(first)
    result = mirror.run(second)
    assert (result.failure, result.tip.id) == (None, 2)
    assert result.tip.hash == second.hash
    assert mirror.host.log(PATH).read_text() == BEFORE["log"]


def test_a_push_to_a_repository_that_nothing_names_here_waits(tmp_path: Path) -> None:
    """A primary of this release names it, and then documents bring it."""
    result = Mirror(tmp_path).run(pushes()[0])
    assert result.failure is not None
    assert result.failure.kind is Kind.MISSING
    assert "documents bring it" in result.failure.reason


def test_messages_of_mirrors_and_sessions_of_the_release_before_are_read() -> None:
    records = [push.record for push in pushes()]
    assert [(record.repository, record.id) for record in records] == [(IDENTITY, 1), (IDENTITY, 2)]
    with pytest.raises(messages.LargeRecordError) as caught:
        messages.decode_push(BEFORE["large"]["headers"], b"")
    assert (caught.value.repository, caught.value.number, caught.value.hash) == (IDENTITY, 1, "")
    assert messages.decode_applied(BEFORE["applied"].encode()) == Applied("hgweb1", IDENTITY, 2)
    brought = Brought("hgweb1", "registry", "boot", 3)
    assert messages.decode_applied(BEFORE["brought"].encode()) == brought
    lease = Lease("hgweb1", "boot", True, 1, 0, 1795440000.5)
    assert messages.decode_lease(BEFORE["lease"].encode()) == lease
    event = events.decode(BEFORE["event"].encode())
    assert (event.id, event.path, event.epoch) == (f"{IDENTITY}.2", PATH, 1)
    request: Any = wake_server.parse(BEFORE["wake"].encode())
    assert (request.repository, request.id, request.hash) == (IDENTITY, 2, "")
    parked = state_file.named(json.loads(BEFORE["state"]), "parked")
    assert parked == {PATH: (PATH, "record 7 belongs to another repository")}


def test_the_relay_goes_on_from_positions_by_path(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / FILE)
    file.executescript(BEFORE["positions"])
    file.close()
    (position,) = Positions(tmp_path)
    last = BEFORE["log"].splitlines()[-1].encode()
    assert (position.repository, position.tip.id) == (IDENTITY, 2)
    assert position.tip.hash == hash_of(last)


def test_the_registry_gets_the_identities_that_messages_have(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    mirror.has_applied(pushes()[0])
    before = user_repositories.parse(BEFORE["registry"].encode(), "the registry")
    assert [entry.identity for entry in before.repositories.values()] == ["", ""]
    assert not before.problems()
    known = {path: identities.found(mirror.host.path(path), "") for path in before.repositories}
    given, problems = identities.decide(known)
    assert (given[PATH], problems) == (IDENTITY, {})
    change = Update(before)
    for path, own in given.items():
        change[path] = replace(change[path], identity=own)
    mirror.host.dynamic.write_bytes(change.render())
    assert mirror.paths.read().paths[IDENTITY] == PATH
    # Its other entries are kept.
    assert user_repositories.load(mirror.host.dynamic).renamed["people/bob/old"].to == PATH


def test_bundles_of_the_release_before_are_offered_once_they_are_taken_over() -> None:
    before = user_repositories.parse(BEFORE["registry"].encode(), "the registry")
    static = Registry(repositories={})
    for path, is_public in ((OPEN, True), (PATH, False)):
        lines = BEFORE["manifests"][path].encode().splitlines()
        assert advertised.choose(lines, IDENTITY, is_public) == ([], {advertised.FOREIGN})
        entry = replace(before.repositories[path], identity=IDENTITY)
        repository = user_repositories.effective(path, entry, static)
        entries = manifest.parse(BEFORE["manifests"][path])
        since = adoption.arrival(path, before)
        kept = adoption.adoptable(entries, repository, since, URLS, NOW)
        # URLs are signed only for keys with an identity: a private repository gets new bundles.
        assert len(kept) == int(is_public)
        taken = [bundle.line().encode() for bundle in kept]
        assert advertised.choose(taken, IDENTITY, is_public) == (taken, set())
        assert not advertised.choose(taken, "9a" * 16, is_public)[0]


def test_a_mirror_deletes_manifests_by_path_and_fetches_none() -> None:
    listed = documents.parse_line(BEFORE["document"].encode())
    plan = documents.plan({listed.name: listed.sha256}, [listed])
    assert (plan.delete, plan.fetch) == ((listed.name,), ())


def test_tokens_are_bound_to_a_person_who_is_no_younger() -> None:
    tokens = token_file.parse(BEFORE["tokens"])
    (name,) = tokens
    person = PersonState(ENABLED, person_id="b862b310-7ccc-103e-8a1f-1b0c5d2e3f40")
    assert token_sweep.to_bind(tokens, {"bob": person}, NOW.timestamp()) == {name: person.person_id}
    later = PersonState(ENABLED, person_id="b862b310-7ccc-1041-8a1f-1b0c5d2e3f40")
    assert token_sweep.to_bind(tokens, {"bob": later}, NOW.timestamp()) == {}
    assert token_file.dump(tokens) == BEFORE["tokens"]

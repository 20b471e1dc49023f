"""Access to repositories as the registry has it at this moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.manifest import Entry, Manifests
from hgfleet.bundles.decide.plan import Refresh
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.stores.access import (
    Access,
    ChangedError,
    difference,
    is_publishable,
    withdrawn,
)
from hgfleet.core import identity
from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic import entry as people
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Repository, Settings, build

if TYPE_CHECKING:
    from pathlib import Path

MINE, OTHER = "5f" * 16, "9a" * 16
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PUBLIC = Repository("people/bob/x", "", "public", (), True, ("zstd",), identity=MINE)
PRIVATE = replace(PUBLIC, read=())


@pytest.mark.parametrize(
    ("planned", "now", "said"),
    [
        (PUBLIC, PUBLIC, ""),
        (PUBLIC, replace(PUBLIC, description="new", bundles=("gzip",)), ""),
        (PRIVATE, replace(PRIVATE, read=("team",)), ""),
        (PUBLIC, None, "it is no longer in service"),
        (PUBLIC, replace(PUBLIC, identity=OTHER), "it is no longer in service"),
        (PUBLIC, PRIVATE, "it is not public any more"),
        (PRIVATE, PUBLIC, "it is public now"),
        (PUBLIC, replace(PUBLIC, path="people/bob/y"), "it is at people/bob/y now"),
    ],
)
def test_work_goes_on_for_the_repository_that_it_began_with(
    planned: Repository, now: Repository | None, said: str
) -> None:
    assert difference(planned, now) == said


def test_an_entry_is_for_one_repository_and_its_readers() -> None:
    entry = Entry("https://s.example/b/x.hg", "zstd-v2", "0" * 64, 10, 3, NOW, identity=MINE)
    private = replace(entry, private=True)
    assert is_publishable(entry, PUBLIC)
    assert is_publishable(private, PRIVATE)
    assert not is_publishable(private, PUBLIC)
    assert not is_publishable(entry, PRIVATE)
    assert not is_publishable(entry, replace(PUBLIC, identity=OTHER))
    # An entry of the release before, also on a host without identities.
    assert not is_publishable(replace(entry, identity=""), PUBLIC)
    assert not is_publishable(replace(entry, identity=""), replace(PUBLIC, identity=""))


class Host:
    """A registry, and a repository on disk."""

    def __init__(self, root: Path) -> None:
        self.config = Config(
            stores=(),
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            registry=root / "registry.json",
            dynamic=root / "dynamic/registry.json",
            repositories=root / "repos",
            manifests=root / "manifests",
        )
        static = build({}, {"people": Namespace("people")}, Settings())
        self.config.registry.write_text(dump_compiled(static))
        self.config.dynamic.parent.mkdir()
        self.config.manifests.mkdir()
        self.manifests = Manifests(self.config.manifests)
        self.access = Access(self.config, self.manifests)

    def on_disk(self, path: str, known_as: str) -> None:
        place = self.config.repositories / path / identity.FILE
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(identity.text(known_as))

    def enter(self, path: str, known_as: str, **more: object) -> None:
        with dynamic_update.update(self.config.dynamic) as entries:
            made = people.Entry("bob", "", "2026-11-20T00:00:00Z", identity=known_as)
            entries[path] = replace(made, **more)  # type: ignore[arg-type]

    def leave(self, path: str) -> None:
        with dynamic_update.update(self.config.dynamic) as entries:
            entries.note_purged(entries[path].identity)
            del entries[path]

    def problem(self, repository: Repository) -> str:
        try:
            self.access.check(repository)
        except ChangedError as error:
            return str(error)
        return ""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_change_counts_from_the_next_check_on(host: Host) -> None:
    host.on_disk("people/bob/x", MINE)
    host.enter("people/bob/x", MINE)
    assert host.problem(PUBLIC) == ""
    host.enter("people/bob/x", MINE, read=())
    assert host.problem(PUBLIC) == "people/bob/x: it is not public any more"
    assert host.access.decide(PUBLIC).read == ()
    host.enter("people/bob/x", MINE, archived="2026-11-20T00:00:00Z")
    assert host.problem(PUBLIC) == "people/bob/x: it is no longer in service"
    assert host.access.decide(PUBLIC) == withdrawn(PUBLIC)
    # Another repository has the path, in the registry first, then on disk.
    host.leave("people/bob/x")
    host.enter("people/bob/x", OTHER)
    assert host.problem(PUBLIC) == "people/bob/x: it is no longer in service"
    assert host.access.purged() == {MINE}
    other = replace(PUBLIC, identity=OTHER)
    assert f"got repository {MINE}, expected {OTHER}" in host.problem(other)
    host.on_disk("people/bob/x", OTHER)
    assert host.problem(other) == ""


def test_a_repository_is_found_where_it_is_now(host: Host) -> None:
    host.enter("people/bob/y", MINE)
    host.enter("people/bob/x", OTHER, read=())
    now = host.access.decide(PUBLIC)
    assert (now.path, now.read) == ("people/bob/y", "public")
    assert host.problem(PUBLIC) == "people/bob/x: it is at people/bob/y now"


def test_a_registry_that_cannot_be_read_allows_nothing(host: Host) -> None:
    host.on_disk("people/bob/x", MINE)
    host.enter("people/bob/x", MINE)
    host.manifests.note_user_repositories()
    good = host.config.dynamic.read_text()
    for damage in (
        lambda: host.config.dynamic.write_text("half of it"),
        lambda: host.config.dynamic.unlink(),
        lambda: host.config.registry.unlink(),
    ):
        damage()
        with pytest.raises(RegistryError):
            host.access.check(PUBLIC)
        with pytest.raises(RegistryError):
            host.access.decide(PUBLIC)
        host.config.dynamic.write_text(good)

"""Repositories that are renamed, deleted, made again or given other readers while a run goes on."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.bundles.hg import hg_side
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.registry import Namespace, Registry, Settings, build
from testing.integration.support.store import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.bundles.steps.job import Outcome
    from testing.integration.bundles.site import BundleSite
    from testing.integration.support.store import Store

PATH, OTHER_PATH, OTHER = "people/bob/x", "people/bob/y", "9a" * 16
STATIC: Registry = build(
    {}, {"people": Namespace("people")}, Settings(bundles=("zstd",), bundles_from=1)
)


class People:
    """A site with a public and a private store, and the repositories of bob."""

    def __init__(self, site: BundleSite) -> None:
        self.site = site
        site.register(STATIC)
        site.dynamic.parent.mkdir()

    def create(self, path: str, known_as: str, **more: Any) -> None:
        """Make a repository with another history than all before."""
        self.site.make(path, known_as=known_as)
        self.site.change(path)
        with dynamic_update.update(self.site.dynamic) as entries:
            created = "2026-11-20T00:00:00Z"
            entries[path] = Entry("bob", created=created, identity=known_as, **more)

    def change(self, path: str, **more: Any) -> None:
        with dynamic_update.update(self.site.dynamic) as entries:
            entries[path] = replace(entries[path], **more)

    def rename(self, old: str, new: str) -> None:
        self.site.path(old).rename(self.site.path(new))
        with dynamic_update.update(self.site.dynamic) as entries:
            entries[new] = entries[old]
            del entries[old]

    def delete(self, path: str) -> None:
        shutil.rmtree(self.site.path(path))
        with dynamic_update.update(self.site.dynamic) as entries:
            entries.note_purged(entries[path].identity)
            del entries[path]

    def run(self, during: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Run for all repositories; something happens after the registry was read."""
        pipeline = self.site.pipeline(NOW + timedelta(hours=1))
        known, archived = pipeline.known()
        repositories = [*known.repositories.values(), *archived]
        during()
        return pipeline.run(repositories, everything=True)

    def stored(self) -> list[set[str]]:
        """Return the identities of the bundles in the public and in the private store."""
        return [
            {key.partition("/")[0] for key in store.content if key.endswith(".hg")}
            for store in self.site.stores
        ]

    def published(self, known_as: str) -> list[bool]:
        """Return whether each published entry of a repository is private."""
        return [entry.private for entry in self.site.manifests.read(known_as)]


MINE = "5f" * 16


@pytest.fixture
def people(closed: BundleSite) -> People:
    return People(closed)


def test_a_public_repository_at_the_path_of_a_private_one_has_nothing_of_it(
    people: People,
) -> None:
    people.create(PATH, MINE, read=())
    people.run()
    assert people.stored() == [set(), {MINE}]
    people.rename(PATH, OTHER_PATH)
    people.create(PATH, OTHER)
    # Until the next run, the new repository has no bundles, and the old repository has its own.
    assert people.published(OTHER) == []
    assert people.published(MINE) == [True]
    said = people.site.manifests.read_text(MINE)
    assert [outcome.error for outcome in people.run()] == [None, None]
    assert people.stored() == [{OTHER}, {MINE}]
    assert people.published(OTHER) == [False]
    # A rename costs nothing, and withdraws nothing.
    assert people.site.manifests.read_text(MINE) == said
    assert "withdrawn" not in people.site.said.getvalue()


def test_a_repository_that_was_made_again_as_private_during_a_run_stays_private(
    people: People,
) -> None:
    people.create(PATH, MINE)

    def again() -> None:
        people.delete(PATH)
        people.create(PATH, OTHER, read=())

    assert [outcome.error for outcome in people.run(again)] == [None]
    assert people.stored() == [set(), set()]
    assert people.published(OTHER) == people.published(MINE) == []
    people.run()
    assert people.stored() == [set(), {OTHER}]


@pytest.mark.parametrize("change", ["private", "archived", "deleted", "renamed", "replaced"])
def test_a_change_between_generation_and_upload_keeps_the_bundle_from_the_public_store(
    people: People, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    people.create(PATH, MINE)
    uploaded: list[str] = []
    generate = hg_side.generate

    def generated(*arguments: Any) -> hg_side.Bundle:
        made = generate(*arguments)
        if not uploaded:
            uploaded.append("-")
            CHANGES[change](people)
        return made

    def upload(store: Store, original: Callable[..., bool]) -> Callable[..., bool]:
        def noted(key: str, *arguments: Any) -> bool:
            uploaded.append(f"{store.name}: {key.partition('/')[0]}")
            return original(key, *arguments)

        return noted

    monkeypatch.setattr(hg_side, "generate", generated)
    for store in people.site.stores:
        monkeypatch.setattr(store, "upload", upload(store, store.upload))
    (outcome,) = people.run()
    assert outcome.error is None
    assert uploaded == ["-", *AFTER.get(change, [])]
    assert people.stored() == [
        {expected[6:] for expected in AFTER.get(change, []) if expected.startswith("main")},
        {expected[8:] for expected in AFTER.get(change, []) if expected.startswith("closed")},
    ]


def replaced(people: People) -> None:
    people.rename(PATH, OTHER_PATH)
    people.create(PATH, OTHER, read=())


CHANGES: dict[str, Callable[[People], None]] = {
    "private": lambda people: people.change(PATH, read=()),
    "archived": lambda people: people.change(PATH, archived="2026-11-20T00:00:00Z"),
    "deleted": lambda people: people.delete(PATH),
    "renamed": lambda people: people.rename(PATH, OTHER_PATH),
    "replaced": replaced,
}
# The run decides again at once: for other readers, or at the path that the repository has now.
AFTER = {
    "private": [f"closed: {MINE}"],
    "renamed": [f"main: {MINE}"],
    "replaced": [f"main: {MINE}"],
}


def test_a_change_during_the_upload_takes_the_object_back(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.create(PATH, MINE)
    main = people.site.store
    original = main.upload

    def upload(*arguments: Any) -> bool:
        created = original(*arguments)
        people.change(PATH, read=())
        return created

    monkeypatch.setattr(main, "upload", upload)
    (outcome,) = people.run()
    assert outcome.error is None
    assert people.stored() == [set(), {MINE}]
    assert people.published(MINE) == [True]
    assert "it is not public any more" in people.site.said.getvalue()


def test_a_change_before_the_publication_withdraws_what_was_uploaded(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.create(PATH, MINE)
    reader = people.site.pipeline().job.stores.reader
    probe = type(reader).probe

    def probed(*arguments: Any) -> None:
        probe(*arguments)
        people.change(PATH, read=())

    monkeypatch.setattr(type(reader), "probe", probed)
    (outcome,) = people.run()
    assert outcome.error is None
    assert people.stored() == [set(), {MINE}]
    assert people.published(MINE) == [True]


def test_pages_do_not_name_a_repository_that_became_private_during_the_run(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.create(PATH, MINE, description="secret plans")
    people.run()
    assert "secret plans" in people.site.store.pages["index.html"].decode()
    pipeline = people.site.pipeline(NOW + timedelta(hours=1))
    known, _ = pipeline.known()
    keep = type(pipeline)._purged

    def purged(self: Any, outcomes: list[Outcome]) -> list[Outcome]:
        # After all repositories, and before the pages.
        people.change(PATH, read=())
        return keep(self, outcomes)

    monkeypatch.setattr(type(pipeline), "_purged", purged)
    pipeline.run([*known.repositories.values()], everything=True)
    for page in ("index.html", "bundles.json"):
        said = people.site.store.pages[page].decode()
        assert PATH not in said
        assert "secret plans" not in said


@pytest.mark.parametrize("kinds", [("zstd",), ()])
def test_without_identity_a_repository_has_to_wait_for_its_bundles(
    site: BundleSite, kinds: tuple[str, ...]
) -> None:
    """Also for pull bundles: the registry may be damaged, and name no identity."""
    site.config = replace(site.config, pull=replace(site.config.pull, least=1))
    project = site.repository("project", kinds=kinds)
    (outcome,) = site.run(replace(project, identity=""))
    assert outcome.plan is not None
    assert "does not say its identity" in outcome.plan.reasons[0]
    assert site.bundles() == [[]]
    assert not site.config.pull_bundles.exists()


# State of the release before.


def as_before(people: People, path: str, known_as: str) -> None:
    """Give the state of a repository the names that the release before gave it."""
    site = people.site
    for entry in site.manifests.read(known_as):
        store = next(target for target in site.stores if entry.url.startswith(f"{target.url}/"))
        key = store.key(entry)
        former = key.replace(known_as, path)
        store.content[former] = store.content.pop(key)
        store.modified[former] = store.modified.pop(key)
    text = site.manifests.read_text(known_as)
    text = text.replace(f"/{known_as}/", f"/{path}/").replace(f" identity={known_as}", "")
    site.manifests.delete(known_as)
    site.manifests.path(path).parent.mkdir(parents=True)
    site.manifests.path(path).write_text(text)


def test_public_bundles_of_the_release_before_are_taken_over(people: People) -> None:
    people.create(PATH, MINE)
    people.run()
    as_before(people, PATH, MINE)
    (former,) = people.site.store.content
    assert [outcome.error for outcome in people.run()] == [None]
    assert "took over 1 of 1 entries" in people.site.said.getvalue()
    (entry,) = people.site.manifests.read(MINE)
    assert entry.identity == MINE
    assert people.site.store.key(entry) == former
    assert not people.site.manifests.path(PATH).parent.exists()
    # After a rename, too, until another bundle replaces it.
    people.rename(PATH, OTHER_PATH)
    people.create(PATH, OTHER)
    people.run()
    assert people.published(MINE) == [False]
    assert former in people.site.store.content
    people.delete(OTHER_PATH)
    people.run()
    assert people.stored()[0] == {OTHER}


def test_a_change_of_the_registry_takes_them_over_at_once(people: People) -> None:
    """`registry apply` of this release, which gives the identities, is such a change."""
    people.create(PATH, MINE)
    people.run()
    as_before(people, PATH, MINE)
    pipeline = people.site.pipeline()
    known, archived = pipeline.known()
    assert pipeline.withdraw([*known.repositories.values(), *archived], everything=True) == []
    (entry,) = people.site.manifests.read(MINE)
    assert entry.identity == MINE
    assert not people.site.manifests.exists(PATH)


@pytest.mark.parametrize("more", [{"read": ()}, {"created": "2030-01-01T00:00:00Z"}])
def test_other_bundles_of_the_release_before_are_withdrawn(
    people: People, more: dict[str, Any]
) -> None:
    people.create(PATH, MINE)
    people.run()
    as_before(people, PATH, MINE)
    people.change(PATH, **more)
    people.run()
    assert "took over 0 of 1 entries" in people.site.said.getvalue()
    assert not people.site.manifests.path(PATH).exists()
    if "read" in more:
        assert people.stored() == [set(), {MINE}]
        assert people.published(MINE) == [True]
    else:
        assert people.published(MINE) == [False]


def test_state_of_a_path_that_nobody_has_goes_at_once(people: People) -> None:
    people.create(PATH, MINE)
    people.create(OTHER_PATH, OTHER)
    people.run()
    as_before(people, PATH, MINE)
    people.delete(PATH)
    people.run()
    assert people.stored() == [{OTHER}, set()]
    assert not people.site.manifests.path(PATH).exists() or not people.site.manifests.read(PATH)

"""Bundles that the release before published, by the path of their repository."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hgfleet.bundles.decide.manifest import Entry, object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.steps.adoption import adoptable, arrival
from hgfleet.registry.dynamic.entry import Entry as Registered
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.dynamic.user_repositories import dynamic_of
from hgfleet.registry.model.registry import Repository

MINE = "5f" * 16
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
URLS = {"main": "https://store.example/bundles"}
PROJECT = Repository("people/bob/x", "", "public", (), True, ("zstd",), identity=MINE)


def entry(path: str = "people/bob/x", at: str = URLS["main"]) -> Entry:
    url = object_url(at, make_key(path, "a" * 40, "1" * 64, "zstd"))
    return Entry(url, "zstd-v2", "1" * 64, 10, 100, NOW)


def test_entries_of_the_path_get_the_identity_of_its_repository() -> None:
    taken = [replace(entry(), identity=MINE)]
    assert adoptable([entry()], PROJECT, None, URLS, NOW) == taken
    assert adoptable([entry()], PROJECT, NOW - timedelta(seconds=1), URLS, NOW) == taken


def test_entries_that_may_be_of_another_repository_are_withdrawn() -> None:
    def kept(
        candidate: Entry, repository: Repository = PROJECT, since: datetime | None = None
    ) -> bool:
        return bool(adoptable([candidate], repository, since, URLS, NOW))

    # Made before the repository came to its path.
    assert not kept(entry(), since=NOW)
    assert not kept(entry(), since=NOW + timedelta(days=1))
    # For other readers than it has now, or in a store for others.
    assert not kept(entry(), replace(PROJECT, read=("team",)))
    assert not kept(replace(entry(), private=True))
    assert not kept(entry(at="https://closed.example/bundles"))
    assert not kept(entry("people/bob/y"))
    assert not kept(entry(), replace(PROJECT, identity=""))


def test_a_repository_comes_to_its_path_by_creation_or_rename() -> None:
    made = Registered("bob", "", "2026-11-18T00:00:00Z").to_json()
    renamed = {
        "people/bob/a": {"to": "people/bob/x", "owner": "bob", "since": "2026-11-20T09:00:00Z"},
        "people/bob/b": {"to": "people/bob/y", "owner": "bob", "since": "2026-11-20T10:00:00Z"},
        "people/bob/c": "no note",
    }
    assert Rename(**renamed["people/bob/a"]).to == "people/bob/x"  # type: ignore[arg-type]
    dynamic = dynamic_of({"people/bob/x": made, "people/bob/z": made}, renamed)
    assert arrival("people/bob/x", dynamic) == datetime(2026, 11, 20, 9, tzinfo=UTC)
    assert arrival("people/bob/z", dynamic) == datetime(2026, 11, 18, tzinfo=UTC)
    assert arrival("team/tool", dynamic) is None


def test_a_bundle_of_the_future_is_not_taken_over_from_a_former_repository() -> None:
    ahead = replace(entry(), made=NOW + timedelta(days=3))
    assert adoptable([ahead], PROJECT, NOW, URLS, NOW) == []

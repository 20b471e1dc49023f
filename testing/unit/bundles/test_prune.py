from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.decide.prune import prunable
from hgfleet.objectstore.bucket import StoredObject

BEFORE = datetime(2026, 11, 13, tzinfo=UTC)
MINE, OTHER = "5f" * 16, "9a" * 16
OLD = BEFORE - timedelta(seconds=1)


def stored(digit: str, modified: datetime = OLD, path: str = MINE) -> StoredObject:
    return StoredObject(str(make_key(path, "a" * 40, digit * 64, "zstd")), 10, modified)


def test_what_no_manifest_names_and_is_old_goes() -> None:
    assert prunable({MINE}, [stored("1"), stored("2")], {stored("1").key}, BEFORE) == [stored("2")]


def test_what_is_young_may_be_published_in_a_moment() -> None:
    assert prunable({MINE}, [stored("1", BEFORE)], set(), BEFORE) == []


def test_objects_of_other_repositories_are_never_touched() -> None:
    others = [
        stored("1", path=OTHER),
        stored("1", path="team/project"),
        stored("1", path=f"{MINE}/fork"),
        stored("1", path=f"{MINE}s"),
        StoredObject(f"{MINE}/index.html", 1, OLD),
        StoredObject(f"{MINE}/", 0, OLD),
    ]
    assert prunable({MINE}, others, set(), BEFORE) == []


def test_objects_of_the_release_before_go_by_their_path() -> None:
    former, other = stored("1", path="team/project"), stored("1", path="team/project/fork")
    assert prunable({MINE, "team/project"}, [former, other], set(), BEFORE) == [former]

"""Changes of the registry of user repositories, as steps on a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hgfleet.registry.entry import Entry
from hgfleet.registry.model import Registry, Repository
from hgfleet.registry.renames import Rename, with_rename
from hgfleet.registry.user_repositories import dynamic_of
from hgfleet.replication.registry_changes import FEW, Changes, changes

if TYPE_CHECKING:
    from hgfleet.registry.user_repositories import Dynamic

STATIC = Registry(repositories={})


def _entry(second: int, **fields: Any) -> dict[str, Any]:
    return Entry(owner="bob", created=f"2026-11-21T00:00:{second:02}Z", **fields).to_json()


def _dynamic(raw: dict[str, Any], **renamed: str) -> Dynamic:
    notes: dict[str, Any] = {}
    for old, new in renamed.items():
        notes = with_rename(notes, old, Rename(new, "bob", "2026-11-21T00:00:00Z"))
    return dynamic_of(raw, notes)


def test_an_equal_registry_needs_no_step() -> None:
    one = _dynamic({"a": _entry(1)})
    assert changes(one, one, STATIC) == Changes()


def test_new_and_changed_entries_are_configured() -> None:
    before = _dynamic({"a": _entry(1), "b": _entry(2)})
    after = _dynamic({"a": _entry(1), "b": _entry(2, read=()), "c": _entry(3)})
    assert changes(before, after, STATIC) == Changes(configure=("b", "c"))


def test_an_entry_that_left_is_removed() -> None:
    before = _dynamic({"a": _entry(1), "b": _entry(2)})
    assert changes(before, _dynamic({"b": _entry(2)}), STATIC) == Changes(remove=("a",))


def test_an_archived_repository_stays() -> None:
    before = _dynamic({"a": _entry(1)})
    after = _dynamic({"a": _entry(1, archived="2026-11-22T00:00:00Z")})
    assert changes(before, after, STATIC) == Changes(configure=("a",))


def test_a_renamed_repository_is_moved() -> None:
    before = _dynamic({"a": _entry(1)})
    for after in (
        _dynamic({"b": _entry(1)}, a="b"),
        _dynamic({"b": _entry(1, moved_from="a")}),
        _dynamic({"b": _entry(1)}),
    ):
        assert changes(before, after, STATIC) == Changes(moves=(("a", "b"),), configure=("b",))


def test_a_repository_created_at_a_former_path_is_another_one() -> None:
    before = _dynamic({"a": _entry(1)})
    after = _dynamic({"a": _entry(2), "b": _entry(1)})
    found = changes(before, after, STATIC)
    assert found == Changes(moves=(("a", "b"),), configure=("a", "b"))


def test_a_repository_deleted_and_created_again_is_another_one() -> None:
    found = changes(_dynamic({"a": _entry(1)}), _dynamic({"a": _entry(2)}), STATIC)
    assert found == Changes(remove=("a",), configure=("a",))


def test_two_repositories_can_exchange_their_paths() -> None:
    before = _dynamic({"a": _entry(1), "b": _entry(2)})
    after = _dynamic({"a": _entry(2), "b": _entry(1)})
    assert changes(before, after, STATIC).moves == (("b", "a"), ("a", "b"))


def test_repositories_that_may_be_either_are_no_move() -> None:
    before = _dynamic({"a": _entry(1), "b": _entry(1)})
    after = _dynamic({"c": _entry(1)})
    assert changes(before, after, STATIC) == Changes(remove=("a", "b"), configure=("c",))


def test_a_registry_that_lost_most_entries_removes_nothing() -> None:
    many = {f"r{number:02}": _entry(number) for number in range(FEW + 2)}
    found = changes(_dynamic(many), _dynamic({"r00": many["r00"]}), STATIC)
    assert found == Changes(kept=tuple(sorted(many))[1:])


def test_repositories_of_the_inventory_are_left_alone() -> None:
    static = Registry(
        repositories={"a": Repository("a", "", read="public", push=(), publishing=True, bundles=())}
    )
    assert changes(_dynamic({"a": _entry(1)}), _dynamic({}), static) == Changes()
    assert changes(_dynamic({}), _dynamic({"a": _entry(1)}), static) == Changes()

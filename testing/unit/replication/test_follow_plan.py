"""Folders of a mirror, as its registry wants them."""

from __future__ import annotations

import pytest

from hgfleet.replication.mirror.follow_plan import AWAY, SHARED, Folder, Plan, leaving, plan

A, B, C = ("1" * 32, "2" * 32, "3" * 32)


def test_folders_in_their_places_need_no_step() -> None:
    folders = [Folder("a", A), Folder("people/bob/b", B)]
    assert plan(folders, {"a": A, "people/bob/b": B}, ()) == Plan()


def test_a_renamed_repository_is_moved_through_a_place_of_its_own() -> None:
    folder = Folder("a", A)
    assert plan([folder], {"b": A}, ()) == Plan(take_away=[folder], put=[(folder, "b")])


def test_two_repositories_can_exchange_their_paths() -> None:
    first, other = Folder("a", A), Folder("b", B)
    made = plan([first, other], {"a": B, "b": A}, ())
    assert made == Plan(take_away=[first, other], put=[(first, "b"), (other, "a")])


@pytest.mark.parametrize("name", [A, f"aside-{A}", "to-people+bob+a", f"gone-{A}"])
def test_a_folder_that_was_taken_away_comes_to_its_place(name: str) -> None:
    """A killed run, a run of a release before, or the registry, which did not name it, moved it."""
    folder = Folder(f"{AWAY}/{name}", A)
    assert plan([folder], {"a": A}, ()) == Plan(put=[(folder, "a")])


def test_a_repository_that_was_deleted_is_deleted_wherever_it_is() -> None:
    for place in ("a", f"{AWAY}/{A}", f"{AWAY}/aside-{A}", f"{AWAY}/gone-{A}"):
        folder = Folder(place, A)
        assert plan([folder], {"a": B}, {A}) == Plan(delete=[folder])


def test_the_rest_of_a_deleted_folder_goes() -> None:
    folder = Folder(f"{AWAY}/gone-{A}")
    assert plan([folder], {}, ()) == Plan(delete=[folder])


def test_a_repository_in_service_is_not_deleted_by_a_note() -> None:
    assert plan([Folder("a", A)], {"a": A}, {A}) == Plan()


def test_a_repository_that_the_registry_does_not_name_is_set_aside() -> None:
    folder = Folder("a", A)
    assert plan([folder], {}, {B}) == Plan(set_aside=[(folder, f"aside-{A}")])
    # There it stays.
    assert plan([Folder(f"{AWAY}/aside-{A}", A)], {}, {B}) == Plan()


def test_a_registry_that_lost_its_entries_deletes_nothing() -> None:
    folders = [Folder(f"r{number}", f"{number:032x}") for number in range(30)]
    made = plan(folders, {}, ())
    assert not made.delete
    assert len(made.set_aside) == 30


def test_a_copy_is_set_aside_and_never_over_another_one() -> None:
    mine, copy = Folder("z", A), Folder("copy", A)
    before = Folder(f"{AWAY}/aside-{A}", A)
    made = plan([copy, mine, before], {"z": A}, ())
    assert made == Plan(set_aside=[(copy, f"aside-{A}-2")])


def test_an_empty_repository_without_identity_gets_that_of_its_entry() -> None:
    folder = Folder("a", is_empty=True)
    assert plan([folder], {"a": A}, ()) == Plan(give=[("a", A)])


def test_content_of_unknown_origin_is_set_aside_where_it_is_in_the_way() -> None:
    folder = Folder("a")
    for wanted in ({"a": A}, {"a/below": A}):
        assert plan([folder], wanted, ()) == Plan(set_aside=[(folder, "aside-unknown")])
    below = Folder("a/below")
    assert plan([below], {"a": A}, ()) == Plan(set_aside=[(below, "aside-unknown")])
    assert plan([folder], {"b": A}, ()) == Plan()


def test_an_empty_folder_at_the_place_of_a_repository_that_is_elsewhere_leaves() -> None:
    empty, folder = Folder("b", is_empty=True), Folder("a", A)
    assert plan([empty, folder], {"b": A}, ()) == Plan(
        take_away=[folder], set_aside=[(empty, "aside-unknown")], put=[(folder, "b")]
    )


def test_entries_of_a_release_before_leave_their_folders_as_they_are() -> None:
    folders = [Folder("a", A), Folder("b"), Folder("c", is_empty=True)]
    assert plan(folders, dict.fromkeys("abc", ""), ()) == Plan()


FIRST, SECOND = "2026-11-21T00:00:01Z", "2026-11-21T00:00:02Z"


def test_a_folder_follows_the_entry_of_a_release_before_by_its_time() -> None:
    logged, unlogged = Folder("a", A, created=FIRST), Folder("c", created=SECOND)
    here = Folder("d", B, created=FIRST)
    made = plan([logged, unlogged], {"b": "", "d": ""}, (), {"b": FIRST, "d": SECOND})
    assert made == Plan(take_away=[logged, unlogged], put=[(logged, "b"), (unlogged, "d")])
    assert plan([here], {"d": ""}, (), {"d": FIRST}) == Plan()
    away = Folder(f"{AWAY}/left-{A}", A, created=FIRST)
    assert plan([away], {"b": ""}, (), {"b": FIRST}) == Plan(put=[(away, "b")])


def test_a_folder_leaves_the_place_of_a_later_entry_of_a_release_before() -> None:
    folder = Folder("a", A, created=FIRST)
    assert plan([folder], {"a": ""}, (), {"a": SECOND}) == Plan(set_aside=[(folder, f"aside-{A}")])
    # The folder has followed no entry.
    assert plan([Folder("a", A)], {"a": ""}, (), {"a": SECOND}) == Plan()


def test_entries_of_one_second_move_no_folder() -> None:
    folder = Folder("a", A, created=FIRST)
    twins = {"b": FIRST, "c": FIRST}
    for nameless in (twins, {**twins, "a": SECOND}):
        made = plan([folder], dict.fromkeys(nameless, ""), (), nameless)
        assert made == Plan(set_aside=[(folder, f"aside-{A}")])


def test_folders_leave_before_an_entry_of_a_release_before_takes_their_place() -> None:
    before = {"a": FIRST, "b": SECOND}
    assert leaving(before, before) == {}
    assert leaving(before, {"a": SECOND, "c": FIRST}) == {"a": FIRST}
    assert leaving(before, {"c": FIRST, "b": SECOND}) == {}
    # The primary was updated.
    assert leaving(before, {}) == {}


def test_folders_of_one_second_leave_together_and_for_good() -> None:
    before = {"a": FIRST, "b": FIRST, "c": SECOND}
    gone = dict.fromkeys("ab", f"{FIRST}{SHARED}")
    assert leaving(before, before) == {}
    assert leaving(before, {"b": FIRST, "c": SECOND}) == gone
    assert leaving(before, {**before, "d": FIRST}) == gone
    folder = Folder(f"{AWAY}/left-{A}", A, created=f"{FIRST}{SHARED}")
    made = plan([folder], {"b": ""}, (), {"b": FIRST})
    assert made == Plan(set_aside=[(folder, f"aside-{A}")])


def test_an_entry_with_an_identity_goes_before_one_without() -> None:
    folder = Folder("a", A, created=FIRST)
    made = plan([folder], {"b": A, "c": ""}, (), {"c": FIRST})
    assert made == Plan(take_away=[folder], put=[(folder, "b")])


def test_another_repository_at_the_place_of_a_new_one_is_set_aside() -> None:
    folder = Folder("a", A)
    assert plan([folder], {"a": B}, {C}) == Plan(set_aside=[(folder, f"aside-{A}")])


def test_a_repository_of_a_release_before_gets_the_identity_of_its_push_log() -> None:
    here, elsewhere = Folder("a", A, is_logged=True), Folder("b", B, is_logged=True)
    made = plan([here, elsewhere, Folder("c", C, is_logged=True)], {"a": A, "new/b": B}, {C})
    assert made.give == [("a", A), ("b", B)]
    assert made.put == [(elsewhere, "new/b")]
    assert [folder.place for folder in made.delete] == ["c"]

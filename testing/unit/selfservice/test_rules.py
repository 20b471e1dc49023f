"""Rules for new repositories: where, how many, and readable for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import AccessDeniedError, UsageError
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.entry import Entry, entry_of
from hgfleet.registry.model import registry
from hgfleet.selfservice import rules
from testing.unit.selfservice.selfservice_registry import (
    ALICE,
    BOB,
    MADE,
    NOBODY,
    NONE,
    STATIC,
    entries,
)

if TYPE_CHECKING:
    from hgfleet.core.principal import Principal
    from hgfleet.registry.dynamic.user_repositories import Dynamic

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"

# --- where ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "principal"),
    [("people/bob/x", BOB), ("people/alice/x", ALICE), ("team/new", ALICE), ("open/a/b", BOB)],
)
def test_people_create_where_a_namespace_is_open_to_them(path: str, principal: Principal) -> None:
    assert path.startswith(rules.check_creation(path, principal, STATIC, NONE).path)


REFUSED = {
    "nowhere": ("new", BOB),
    "below nothing": ("other/new", BOB),
    "not for this person": ("team/new", BOB),
    "for nobody": ("people/mallory/x", NOBODY),
    "the inner namespace counts": ("team/closed/new", ALICE),
    "below another person": ("people/alice/x", BOB),
    "without a name": ("people/bob", BOB),
    "directly in people": ("people/x", BOB),
    "deeper": ("people/bob/x/y", BOB),
}


@pytest.mark.parametrize(("path", "principal"), REFUSED.values(), ids=REFUSED)
def test_and_nowhere_else(path: str, principal: Principal) -> None:
    with pytest.raises(AccessDeniedError):
        rules.check_creation(path, principal, STATIC, NONE)


def test_a_refusal_says_where_the_person_may() -> None:
    with pytest.raises(AccessDeniedError, match=r"You may at open/NAME or people/bob/NAME\."):
        rules.check_creation("x", BOB, STATIC, NONE)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/people/bob/x",
        "people/bob/../x",
        "people/bob/X",
        "people/bob/x.hg",
        "people/bob/.hg",
        "people/bob/-x",
        "people//x",
        "people/bob/x\n",
        "people/bob/x y",
        "people/bob/%2e",
        "static/x",
        "people/bob/" + "a" * 200,
        "people/bob/\xe9",
        "people/bob/x/",
    ],
)
def test_a_path_that_no_registry_would_have_is_refused(path: str) -> None:
    with pytest.raises((UsageError, AccessDeniedError)) as refused:
        rules.check_creation(path, BOB, STATIC, NONE)
    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()


TAKEN: dict[str, Any] = {
    "one of the inventory": ("team/tool", ALICE, NONE),
    "inside one of the inventory": ("team/tool/x", ALICE, NONE),
    "a namespace": ("team/closed", ALICE, NONE),
    "one that somebody created": ("open/x", BOB, entries(open__x=Entry("alice", "", MADE))),
    "inside it": ("open/x/y", BOB, entries(open__x=Entry("alice", "", MADE))),
    "above it": ("open/x", BOB, entries(open__x__y=Entry("alice", "", MADE))),
    "a private one": ("open/x", BOB, entries(open__x=Entry("alice", "", MADE, read=()))),
    "one that another has archived": (
        "open/x",
        BOB,
        entries(open__x=Entry("alice", "", MADE, archived=MADE)),
    ),
}


@pytest.mark.parametrize(("path", "principal", "dynamic"), TAKEN.values(), ids=TAKEN)
def test_a_taken_name_is_not_available(path: str, principal: Principal, dynamic: Dynamic) -> None:
    with pytest.raises(AccessDeniedError) as refused:
        rules.check_creation(path, principal, STATIC, dynamic)
    assert str(refused.value) == f"The name {path} is not available: choose another name."


def test_the_former_path_of_a_repository_is_for_its_former_owner() -> None:
    """Clones of others still have the address."""
    note = {"to": "open/y", "owner": "alice", "since": MADE}
    renamed = user_repositories.dynamic_of({}, {"open/x": note})
    assert rules.check_creation("open/x", ALICE, STATIC, renamed).path == "open"
    with pytest.raises(AccessDeniedError) as refused:
        rules.check_creation("open/x", BOB, STATIC, renamed)
    assert str(refused.value) == "The name open/x is not available: choose another name."


NAMESAKE = "still belongs to another person, who was bob before you: choose another name, or ask an"


@pytest.mark.parametrize("archived", [None, MADE])
def test_a_name_of_a_former_person_is_taken_and_the_refusal_has_the_way_out(
    archived: str | None,
) -> None:
    former = Entry("bob", "", MADE, archived=archived, owner_id=FORMER)
    dynamic = entries(people__bob__x=former, open__x=former)
    today = replace(BOB, person_id=TODAY)
    with pytest.raises(AccessDeniedError, match=NAMESAKE):
        rules.check_creation("people/bob/x", today, STATIC, dynamic)
    # Elsewhere it does not tell who has the name.
    with pytest.raises(AccessDeniedError, match="The name open/x is not available"):
        rules.check_creation("open/x", today, STATIC, dynamic)
    rules.check_creation("people/bob/y", today, STATIC, dynamic)


def test_a_path_that_leads_to_a_repository_of_a_former_person_is_taken() -> None:
    def noted(owner: str, owner_id: str) -> Dynamic:
        note = {"to": "open/y", "owner": owner, "since": MADE, "owner_id": owner_id}
        return user_repositories.dynamic_of({}, {"people/bob/x": note})

    today = replace(BOB, person_id=TODAY)
    rules.check_creation("people/bob/x", today, STATIC, noted("bob", TODAY))
    with pytest.raises(AccessDeniedError, match=NAMESAKE):
        rules.check_creation("people/bob/x", today, STATIC, noted("bob", FORMER))
    with pytest.raises(AccessDeniedError, match="not available"):
        rules.check_creation("people/bob/x", today, STATIC, noted("carol", TODAY))


def test_the_quota_does_not_count_repositories_of_a_former_person() -> None:
    made = {f"people__bob__r{n}": Entry("bob", "", MADE, owner_id=FORMER) for n in range(2)}
    rules.check_creation("people/bob/x", replace(BOB, person_id=TODAY), STATIC, entries(**made))
    with pytest.raises(AccessDeniedError, match="the limit is 2"):
        rules.check_creation(
            "people/bob/x", replace(BOB, person_id=FORMER), STATIC, entries(**made)
        )


def test_an_entry_that_makes_no_sense_still_has_its_name() -> None:
    broken = user_repositories.parse(b'{"format": 1, "repositories": {"open/x": 7}}', "test")
    with pytest.raises(AccessDeniedError, match="not available"):
        rules.check_creation("open/x", BOB, STATIC, broken)


def test_a_person_is_told_of_an_own_repository_in_service() -> None:
    mine = entries(people__bob__x=Entry("bob", "", MADE))
    with pytest.raises(AccessDeniedError) as refused:
        rules.check_creation("people/bob/x", BOB, STATIC, mine)
    assert str(refused.value) == (
        "You have people/bob/x already: ssh://hg@HOST/people/bob/x. Choose another name for "
        "this repository."
    )


def test_a_person_is_told_of_an_own_archived_repository() -> None:
    mine = entries(people__bob__x=Entry("bob", "", MADE, archived=MADE))
    with pytest.raises(AccessDeniedError, match="repo restore people/bob/x"):
        rules.check_creation("people/bob/x", BOB, STATIC, mine)


def test_the_quota_counts_repositories_of_one_person_in_the_namespace() -> None:
    two = entries(
        people__bob__a=Entry("bob", "", MADE),
        people__bob__b=Entry("bob", "", MADE, archived=MADE),
        people__carol__c=Entry("carol", "", MADE),
        open__d=Entry("bob", "", MADE),
    )
    with pytest.raises(AccessDeniedError) as refused:
        rules.check_creation("people/bob/c", BOB, STATIC, two)
    assert "You own 2 repositories below people, 1 of them archived" in str(refused.value)
    assert "the limit is 2" in str(refused.value)
    rules.check_creation("open/e", BOB, STATIC, two)
    rules.check_creation("people/alice/c", ALICE, STATIC, two)


# --- for whom to read -----------------------------------------------------------------------


def source(read: registry.Read) -> registry.Repository:
    return registry.Repository("staff/plans", "", read, (), publishing=True, bundles=())


@pytest.mark.parametrize(
    ("asked", "inherited", "expected"),
    [
        (None, "public", None),
        (None, ("team",), None),
        ("public", "public", "public"),
        ("private", "public", ()),
        ("staff,team", "public", ("staff", "team")),
        ("staff,staff", ("team",), ("staff",)),
    ],
)
def test_readers_of_a_new_repository(
    asked: str | None, inherited: registry.Read, expected: registry.Read | None
) -> None:
    assert rules.readers(asked, inherited) == expected


def test_a_repository_is_never_more_public_than_its_namespace() -> None:
    with pytest.raises(AccessDeniedError, match="cannot be public"):
        rules.readers("public", ("team",))


@pytest.mark.parametrize("asked", ["", "a b", "A", ",", "staff,", "public,staff", "-x", "é"])
def test_readers_that_are_no_groups(asked: str) -> None:
    with pytest.raises(UsageError):
        rules.readers(asked, "public")


@pytest.mark.parametrize(
    ("asked", "read", "expected"),
    [
        (None, ("staff", "team"), ("staff", "team")),
        (None, (), ()),
        ("private", ("staff",), ()),
        ("team", ("staff", "team"), ("team",)),
        (None, "public", None),
        ("public", "public", "public"),
        ("staff", "public", ("staff",)),
    ],
)
def test_a_fork_has_at_most_the_readers_of_its_source(
    asked: str | None, read: registry.Read, expected: registry.Read | None
) -> None:
    assert rules.readers(asked, "public", source(read)) == expected


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("public", ("staff",)),
        ("public", ()),
        ("team", ("staff",)),
        ("staff", ()),
        ("a,staff", ("staff",)),
    ],
)
def test_and_never_more(asked: str, read: tuple[str, ...]) -> None:
    with pytest.raises(AccessDeniedError):
        rules.readers(asked, "public", source(read))


def test_a_creation_checks_the_entries_of_its_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(path: str, value: object) -> Entry | None:
        made.append(path)
        return entry_of(path, value)

    monkeypatch.setattr(user_repositories, "entry_of", counted)
    others = {f"people__p{number}__x": Entry(f"p{number}", "", MADE) for number in range(500)}
    dynamic = entries(people__bob__a=Entry("bob", "", MADE), **others)
    rules.check_creation("people/bob/b", BOB, STATIC, dynamic)
    assert made == ["people/bob/a"]

from __future__ import annotations

from dataclasses import replace

import pytest

from hgfleet.core.principal import Principal
from hgfleet.core.text import alternatives
from hgfleet.registry.model.permissions import may_push, may_read, push_refusal
from hgfleet.registry.model.registry import Read, Repository

ALICE = Principal("alice", frozenset({"maintainers", "sandbox"}))
BOB = Principal("bob", frozenset({"sandbox"}))
FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
NOBODYS_FRIEND = Principal("dora")


def repository(read: Read = "public", push: tuple[str, ...] = ("maintainers",)) -> Repository:
    return Repository("team/tool", "A tool", read, push, publishing=True, bundles=())


@pytest.mark.parametrize("principal", [None, NOBODYS_FRIEND, BOB, ALICE])
def test_everybody_reads_what_is_public(principal: Principal | None) -> None:
    assert may_read(repository(), principal)


@pytest.mark.parametrize(
    ("principal", "expected"), [(None, False), (NOBODYS_FRIEND, False), (BOB, False), (ALICE, True)]
)
def test_only_its_groups_read_what_is_not(principal: Principal | None, expected: bool) -> None:
    assert may_read(repository(read=("maintainers", "staff")), principal) is expected


def test_only_its_groups_push() -> None:
    assert may_push(repository(), ALICE)
    assert not may_push(repository(), BOB)
    assert may_push(repository(push=("staff", "sandbox")), BOB)
    assert not may_push(repository(push=()), ALICE)


def test_who_may_not_read_may_not_push() -> None:
    hidden = repository(read=("staff",), push=("maintainers",))
    assert not may_push(hidden, ALICE)
    assert push_refusal(hidden, ALICE) == (
        "alice may not push to team/tool: only members of staff may read it; "
        "ask an operator to add you"
    )


def test_no_group_is_called_public() -> None:
    assert not may_read(repository(read=("staff",)), Principal("eve", frozenset({"public"})))


def test_a_refusal_names_who_may_and_the_way_out() -> None:
    assert push_refusal(repository(push=("maintainers", "release", "staff")), BOB) == (
        "bob may not push to team/tool: members of maintainers, release or staff may; "
        "ask one of them to push, or an operator to add you"
    )


def test_a_refusal_of_a_read_only_repository_says_so() -> None:
    assert "it is read-only" in push_refusal(repository(push=()), BOB)


def test_an_owner_reads_and_pushes_whatever_the_groups() -> None:
    own = replace(repository(read=(), push=()), owner="dora")
    assert may_read(own, NOBODYS_FRIEND)
    assert may_push(own, NOBODYS_FRIEND)
    assert not may_read(own, ALICE)
    assert not may_push(own, ALICE)
    assert not may_read(own, None)
    assert "only its owner may read it" in push_refusal(own, ALICE)


def test_no_owner_is_nobody_in_particular() -> None:
    assert not may_read(repository(read=("staff",)), Principal(""))
    assert not may_push(repository(push=()), Principal(""))


def test_others_are_told_who_owns_it() -> None:
    own = replace(repository(push=("staff", "release")), owner="dora")
    assert push_refusal(own, ALICE) == (
        "alice may not push to team/tool: only dora, who owns it, and members of staff or release, "
        "may; ask one of them to push, or push to a fork of your own"
    )


def test_where_the_owner_alone_pushes_the_owner_is_the_one_to_ask() -> None:
    own = replace(repository(push=()), owner="dora")
    assert push_refusal(own, ALICE) == (
        "alice may not push to team/tool: only dora, who owns it, may; ask dora to push, or push "
        "to a fork of your own"
    )


def test_a_later_person_of_the_name_is_no_owner_and_is_told_the_way_out() -> None:
    former = replace(repository(read=(), push=()), owner="dora", owner_id=FORMER)
    for person_id in (TODAY, ""):
        assert not may_read(former, Principal("dora", person_id=person_id))
        assert not may_push(former, Principal("dora", person_id=person_id))
    assert may_read(former, Principal("dora", person_id=FORMER))
    assert may_push(former, Principal("dora", person_id=FORMER))
    public = replace(repository(push=()), owner="dora", owner_id=FORMER)
    assert push_refusal(public, Principal("dora", person_id=TODAY)) == (
        "dora may not push to team/tool: only another person of the name dora, who owns it, may; "
        "ask an operator to give it to you, or push to a fork of your own"
    )


def test_read_only_stops_everybody_who_could_push() -> None:
    closed = replace(repository(), read_only="moving until noon", owner="dora")
    for person in (ALICE, NOBODYS_FRIEND):
        assert may_read(closed, person)
        assert not may_push(closed, person)
        assert push_refusal(closed, person) == (
            f"{person.name} may not push to team/tool now: it is read-only (moving until noon); "
            "nothing was changed, push again later"
        )
    # A user who could not push anyway is told that instead.
    assert "members of maintainers" in push_refusal(closed, BOB)


@pytest.mark.parametrize(("values", "expected"), [((), ""), (("a",), "a"), (("a", "b"), "a or b")])
def test_names_are_joined_as_in_a_sentence(values: tuple[str, ...], expected: str) -> None:
    assert alternatives(values) == expected

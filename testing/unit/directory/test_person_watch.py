"""When an open session asks about its person again, and the consequences of the answer."""

from __future__ import annotations

import pytest

from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal
from hgfleet.directory.person_state import PersonState
from hgfleet.directory.person_watch import (
    EVERY_S,
    RETRY_S,
    UNKNOWN_S,
    PersonWatch,
    login_age,
    objection,
)
from hgfleet.ssh.keys.person_lookup import KEEP_S

KEY = f"SHA256:{'k' * 43}"
PERSON_ID = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
OTHER_ID = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
GOOD = PersonState("enabled", frozenset({"a", "b"}), frozenset({KEY}))
NEVER = float("inf")


class Directory:
    """Gives the answers of a test, and records when it is asked."""

    def __init__(self) -> None:
        self.found: PersonState | None = GOOD
        self.asked = 0

    def ask(self, person: str) -> PersonState:
        assert person == "alice"
        self.asked += 1
        if self.found is None:
            raise UnavailableError("away")
        return self.found


def watch(directory: Directory, age: float = 0.0) -> PersonWatch:
    principal = Principal("alice", frozenset({"a"}), PERSON_ID)
    return PersonWatch(principal, KEY, directory.ask, age=age, now=1000.0)


def test_what_a_session_knows_is_less_than_a_minute_old() -> None:
    assert EVERY_S + KEEP_S < 60


def test_the_directory_is_asked_at_most_once_in_a_while() -> None:
    directory = Directory()
    session = watch(directory)
    assert session.check(1000 + EVERY_S - 1) is None
    assert directory.asked == 0
    for second in range(100):
        assert session.check(1000 + EVERY_S + second / 10) is None
    assert directory.asked == 1
    assert session.check(1000 + 2 * EVERY_S) is None
    assert directory.asked == 2


@pytest.mark.parametrize(("age", "asked"), [(0, 0), (EVERY_S - 1, 0), (EVERY_S, 1), (NEVER, 1)])
def test_the_age_counts_from_the_login(age: float, asked: int) -> None:
    directory = Directory()
    assert watch(directory, age).check(1000) is None
    assert directory.asked == asked


def test_a_person_who_is_disabled_ends_the_session() -> None:
    directory = Directory()
    session = watch(directory)
    directory.found = PersonState("disabled")
    assert session.check(1001) is None
    assert "may not use this service" in str(session.check(1000 + EVERY_S))


@pytest.mark.parametrize(
    ("age", "left"), [(0, UNKNOWN_S), (500, UNKNOWN_S - 500), (NEVER, UNKNOWN_S)]
)
def test_a_directory_that_is_away_ends_the_session_in_the_end(age: float, left: float) -> None:
    directory = Directory()
    directory.found = None
    session = watch(directory, age)
    assert session.check(1000 + left - 1) is None
    assert session.check(1000 + left + RETRY_S) is not None


def test_a_directory_that_is_away_is_asked_again_soon_but_not_at_each_command() -> None:
    directory = Directory()
    directory.found = None
    session = watch(directory, EVERY_S)
    for second in range(int(RETRY_S)):
        assert session.check(1000 + second) is None
    assert directory.asked == 1
    directory.found = GOOD
    assert session.check(1000 + RETRY_S) is None
    assert session.check(1000 + RETRY_S + EVERY_S - 1) is None
    assert directory.asked == 2
    directory.found = None
    assert session.check(1000 + RETRY_S + UNKNOWN_S - 1) is None


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (GOOD, None),
        (PersonState("enabled", frozenset({"a"}), frozenset({KEY})), None),
        (PersonState("enabled", frozenset({"b"}), frozenset({KEY})), "the groups of alice changed"),
        (PersonState("enabled", frozenset(), frozenset({KEY})), "the groups of alice changed"),
        (PersonState("enabled", frozenset({"a"})), "is no key of alice any more"),
        (PersonState("disabled"), "alice may not use this service any more"),
        (PersonState("missing"), "alice may not use this service any more"),
        (PersonState("unclear"), "alice may not use this service any more"),
    ],
)
def test_what_was_lost_is_named(state: PersonState, says: str | None) -> None:
    sentence = objection(Principal("alice", frozenset({"a"})), KEY, state)
    assert sentence is None if says is None else says in str(sentence)


def test_a_certificate_is_no_key_of_the_directory() -> None:
    assert objection(Principal("alice"), "", PersonState("enabled")) is None


@pytest.mark.parametrize(
    ("login", "now", "ends"),
    [
        (PERSON_ID, OTHER_ID, True),
        (PERSON_ID, PERSON_ID, False),
        (PERSON_ID, "", False),
        ("", OTHER_ID, False),
    ],
)
def test_another_person_of_the_name_ends_the_session_of_the_former_one(
    login: str, now: str, ends: bool
) -> None:
    # A certificate names a person only by name.
    principal = Principal("alice", person_id=login)
    sentence = objection(principal, "", PersonState("enabled", person_id=now))
    assert (sentence is not None) is ends
    assert sentence is None or "the name alice belongs to another person" in sentence


@pytest.mark.parametrize(
    ("login", "age"),
    [
        ("1000", 0.5),
        ("900", 100.5),
        ("1001", 0.0),
        ("1002", NEVER),
        ("", NEVER),
        ("-5", NEVER),
        ("1e3", NEVER),
        ("9" * 13, NEVER),
        ("\u0661", NEVER),
    ],
)
def test_a_login_of_the_future_or_of_no_time_is_of_unknown_age(login: str, age: float) -> None:
    assert login_age(login, 1000.5) == age

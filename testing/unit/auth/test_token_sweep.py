"""Tokens that a sweep removes, and tokens that it never removes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from hgfleet.auth import token_file, token_sweep
from hgfleet.auth.tokens import Token
from hgfleet.core.errors import TemporaryError, UnavailableError
from hgfleet.directory.person_state import PersonState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
HOUR = token_sweep.MISSING_S


FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
LATER = "b862b310-7ccc-1041-8a1f-1b0c5d2e3f40"
"""The id of a person whose entry was made after the tokens below."""


def token(owner: str, owner_id: str = "") -> Token:
    times = "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
    return Token(owner, "ab" * 32, "CI", *times, owner_id=owner_id)


def keyed(values: dict[str, T]) -> dict[tuple[str, str], T]:
    """Return values by owners whose tokens have no person id."""
    return {(name, ""): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("states", "gone"),
    [
        ({"alice": "enabled", "bob": "disabled"}, {"bob": "disabled"}),
        ({"bob": "disabled"}, {"bob": "disabled"}),
        ({"alice": "enabled", "bob": "missing"}, {}),
        ({"alice": "enabled", "bob": "unclear"}, {}),
        ({"alice": "enabled"}, {}),
        ({}, {}),
    ],
)
def test_the_first_look_removes_tokens_of_the_disabled_alone(
    states: dict[str, str], gone: dict[str, str]
) -> None:
    assert token_sweep.decide(keyed(states), {}, 0).gone == keyed(gone)


@pytest.mark.parametrize("state", ["missing", "another-person"])
def test_an_owner_who_is_not_there_has_an_hour(state: str) -> None:
    states = keyed({"alice": "enabled", "bob": state})
    first = token_sweep.decide(states, {}, 100)
    assert first == token_sweep.Sweep({}, keyed({"bob": 100.0}))
    assert token_sweep.decide(states, first.missing, 99 + HOUR).gone == {}
    assert token_sweep.decide(states, first.missing, 100 + HOUR).gone == keyed({"bob": state})


@pytest.mark.parametrize(("others", "same", "told"), [(10, 0, 0), (11, 0, 11), (11, 11, 0)])
def test_a_directory_that_was_filled_anew_removes_nothing(
    others: int, same: int, told: int
) -> None:
    states = {(f"other{n}", FORMER): "another-person" for n in range(others)}
    states |= {(f"same{n}", TODAY): "enabled" for n in range(same)}
    first = token_sweep.decide(states, {}, 0)
    sweep = token_sweep.decide(states, first.missing, HOUR)
    assert (len(sweep.gone), sweep.others) == (0 if told else others, told)


@pytest.mark.parametrize(
    "between",
    [
        {"alice": "missing", "bob": "missing"},
        {"alice": "enabled", "bob": "enabled"},
        {"alice": "enabled", "bob": "unclear"},
        {"alice": "enabled"},
        {},
    ],
)
def test_the_hour_begins_anew_after_a_look_that_did_not_miss_the_owner(
    between: dict[str, str],
) -> None:
    states = keyed({"alice": "enabled", "bob": "missing"})
    missing = token_sweep.decide(states, {}, 0).missing
    missing = token_sweep.decide(keyed(between), missing, HOUR - 1).missing
    assert token_sweep.decide(states, missing, HOUR + 1).gone == {}


def test_an_empty_directory_removes_nothing_however_long_it_is_empty() -> None:
    missing = keyed({"alice": 0.0, "bob": 0.0})
    states = keyed({"alice": "missing", "bob": "missing"})
    assert token_sweep.decide(states, missing, 100 * HOUR) == token_sweep.Sweep({}, {})


class Site:
    """A host with a file of tokens, whose directory and primary a test chooses."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "tokens.json")
        self.states: dict[str, str] = {}
        self.person_ids: dict[str, str] = {}
        self.refusal = ""
        self.now = 0.0
        self.logged: list[str] = []
        self.during: Callable[[], None] = lambda: None
        self.sweeper = token_sweep.Sweeper(
            self.path, self.ask, self.may_change, self.logged.append, lambda: self.now
        )

    def ask(self, person: str) -> PersonState:
        self.during()
        if person not in self.states:
            raise UnavailableError("no server answers")
        state = self.states[person]
        is_there = state in ("enabled", "disabled")
        return PersonState(state, person_id=self.person_ids.get(person, "") if is_there else "")

    def may_change(self) -> None:
        if self.refusal:
            raise TemporaryError(self.refusal)

    def put(self, **tokens: str) -> None:
        with token_file.update(self.path) as kept:
            kept.update({name * 8: token(owner) for name, owner in tokens.items()})

    def has(self) -> list[str]:
        return sorted(name[0] for name in token_file.load(self.path))

    def look(self, **states: str) -> list[str]:
        self.states = states
        self.sweeper.poll()
        return self.has()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.put(a="alice", b="bob", c="bob")
    return made


def test_tokens_of_a_disabled_person_are_gone_for_good(site: Site) -> None:
    assert site.look(alice="enabled", bob="disabled") == ["a"]
    assert site.look(alice="enabled", bob="enabled") == ["a"]
    assert site.logged == [
        "event=token action=remove owner=bob token=bbbbbbbb reason=disabled",
        "event=token action=remove owner=bob token=cccccccc reason=disabled",
    ]


def test_tokens_of_a_deleted_person_are_gone_after_an_hour(site: Site) -> None:
    assert site.look(alice="enabled", bob="missing") == ["a", "b", "c"]
    site.now = HOUR
    assert site.look(alice="enabled", bob="missing") == ["a"]
    assert "token=cccccccc reason=missing" in site.logged[-1]


def test_a_directory_that_is_away_removes_nothing_and_is_told_once(site: Site) -> None:
    for _ in range(3):
        assert site.look() == ["a", "b", "c"]
    assert site.logged == ['event=token-sweep problem="no server answers"']
    assert site.look(alice="enabled", bob="enabled") == ["a", "b", "c"]
    assert site.logged[1:] == ["event=token-sweep"]


def test_an_owner_is_removed_while_the_directory_does_not_answer_about_the_next_one(
    site: Site,
) -> None:
    assert site.look(alice="disabled") == ["b", "c"]


def test_one_owner_whom_the_directory_does_not_give_out_keeps_no_other_tokens(site: Site) -> None:
    site.put(d="dave")
    assert site.look(bob="disabled", dave="enabled") == ["a", "d"]
    assert site.logged[-1] == 'event=token-sweep problem="no server answers"'


def test_a_look_asks_a_few_times_of_a_directory_that_is_away(site: Site) -> None:
    asked = 0

    def count() -> None:
        nonlocal asked
        asked += 1

    site.put(d="dave", e="eve", f="fay")
    site.during = count
    site.look()
    assert asked == token_sweep.MOST_FAILURES


def test_a_mirror_leaves_its_copy_alone(site: Site) -> None:
    site.refusal = "this host has copies"
    assert site.look(alice="enabled", bob="disabled") == ["a", "b", "c"]


def test_a_damaged_file_stays_as_it_is(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{")
    site.sweeper.poll()
    assert (tmp_path / "tokens.json").read_text() == "{"
    assert "event=token-sweep problem=" in site.logged[0]


def test_a_host_without_tokens_has_nothing_to_do(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.look() == []
    assert site.logged == []


def test_a_token_that_is_made_during_a_look_stays(site: Site) -> None:
    # Only a person who is enabled again can make it.
    site.during = lambda: site.put(d="bob")
    assert site.look(alice="enabled", bob="disabled") == ["a", "d"]


def owner_ids(site: Site) -> dict[str, str]:
    return {name[0]: entry.owner_id for name, entry in token_file.load(site.path).items()}


def test_a_token_of_a_release_before_is_bound_once_its_owner_is_surely_known(site: Site) -> None:
    site.person_ids = {"alice": TODAY, "bob": FORMER}
    site.look(alice="enabled", bob="missing")
    assert owner_ids(site) == {"a": TODAY, "b": "", "c": ""}
    site.look(alice="enabled", bob="unclear")
    site.look(alice="enabled")
    assert owner_ids(site) == {"a": TODAY, "b": "", "c": ""}
    site.look(alice="enabled", bob="enabled")
    assert owner_ids(site) == {"a": TODAY, "b": FORMER, "c": FORMER}
    assert "event=token-sweep bound=2" in site.logged


def test_a_directory_without_person_ids_binds_nothing(site: Site) -> None:
    assert site.look(alice="enabled", bob="enabled") == ["a", "b", "c"]
    site.now = HOUR
    assert site.look(alice="enabled", bob="enabled") == ["a", "b", "c"]
    assert owner_ids(site) == {"a": "", "b": "", "c": ""}


def test_tokens_of_a_former_person_are_gone_after_an_hour(site: Site) -> None:
    site.person_ids = {"alice": TODAY, "bob": FORMER}
    site.look(alice="enabled", bob="enabled")
    site.person_ids["bob"] = TODAY
    with token_file.update(site.path) as kept:
        kept["dddddddd"] = token("bob", TODAY)
    assert site.look(alice="enabled", bob="enabled") == ["a", "b", "c", "d"]
    site.now = HOUR
    assert site.look(alice="enabled", bob="enabled") == ["a", "d"]
    assert "token=cccccccc reason=another-person" in site.logged[-1]


def test_a_token_that_is_older_than_its_owner_is_of_a_former_person(site: Site) -> None:
    site.person_ids = {"alice": TODAY, "bob": LATER}
    assert site.look(alice="enabled", bob="enabled") == ["a", "b", "c"]
    assert owner_ids(site) == {"a": TODAY, "b": "", "c": ""}
    site.now = HOUR
    assert site.look(alice="enabled", bob="enabled") == ["a"]


def test_a_directory_that_was_filled_anew_is_told_with_the_way_out(tmp_path: Path) -> None:
    site = Site(tmp_path)
    names = [f"{letter}x" for letter in "abcdefghijk"]
    with token_file.update(site.path) as kept:
        kept.update({name[0] * 8: token(name, FORMER) for name in names})
    site.person_ids = dict.fromkeys(names, TODAY)
    for site.now in (0, HOUR, 2 * HOUR):
        assert len(site.look(**dict.fromkeys(names, "enabled"))) == len(names)
    assert "`hgfleet owners bind --all` binds them" in site.logged[0]

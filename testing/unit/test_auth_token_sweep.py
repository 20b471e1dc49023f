"""Which tokens a sweep removes, and what it never does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import token_file, token_sweep
from hgfleet.auth.tokens import Token
from hgfleet.core.errors import TemporaryError, UnavailableError
from hgfleet.directory.person_state import PersonState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR = token_sweep.MISSING_S


def token(owner: str) -> Token:
    return Token(owner, "ab" * 32, "CI", "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z")


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
    assert token_sweep.decide(states, {}, 0).gone == gone


def test_a_missing_owner_has_an_hour() -> None:
    states = {"alice": "enabled", "bob": "missing"}
    first = token_sweep.decide(states, {}, 100)
    assert first == token_sweep.Sweep({}, {"bob": 100})
    assert token_sweep.decide(states, first.missing, 99 + HOUR).gone == {}
    assert token_sweep.decide(states, first.missing, 100 + HOUR).gone == {"bob": "missing"}


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
    states = {"alice": "enabled", "bob": "missing"}
    missing = token_sweep.decide(states, {}, 0).missing
    missing = token_sweep.decide(between, missing, HOUR - 1).missing
    assert token_sweep.decide(states, missing, HOUR + 1).gone == {}


def test_an_empty_directory_removes_nothing_however_long_it_is_empty() -> None:
    missing = {"alice": 0.0, "bob": 0.0}
    states = {"alice": "missing", "bob": "missing"}
    assert token_sweep.decide(states, missing, 100 * HOUR) == token_sweep.Sweep({}, {})


class Site:
    """A host with a file of tokens, whose directory and primary a test chooses."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "tokens.json")
        self.states: dict[str, str] = {}
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
        return PersonState(self.states[person])

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
        self.sweeper.look()
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
    site.sweeper.look()
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

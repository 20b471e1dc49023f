"""Repositories and former paths of releases before get the person ids of their owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import TemporaryError, UnavailableError
from hgfleet.directory.person_state import PersonState
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.selfservice import owner_binding
from hgfleet.selfservice.owner_binding import ABSENT, ANOTHER, TODAYS, UNBOUND, UNKNOWN, Binder

if TYPE_CHECKING:
    from pathlib import Path

MADE = "2026-01-01T00:00:00Z"
FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
LATER = "b862b310-7ccc-1041-8a1f-1b0c5d2e3f40"
"""The id of a person whose directory entry was made after the repositories below."""


class Site:
    """A primary with a registry of a release before, and a directory that a test chooses."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "registry.json")
        self.people: dict[str, PersonState] = {}
        self.asked: list[str] = []
        self.refusal = ""
        self.logged: list[str] = []
        self.binder = Binder(self.path, self.ask, self.may_change, self.logged.append)
        with dynamic_update.update(self.path) as entries:
            for path in ("people/alice/x", "people/bob/x", "people/bob/y"):
                entries[path] = Entry(path.split("/")[1], "", MADE)
            entries.note_rename("people/bob/old", Rename("people/bob/x", "bob", MADE))

    def ask(self, person: str) -> PersonState:
        self.asked.append(person)
        if person not in self.people:
            raise UnavailableError("no server answers")
        return self.people[person]

    def may_change(self) -> None:
        if self.refusal:
            raise TemporaryError(self.refusal)

    def look(self, **people: PersonState) -> dict[str, str]:
        self.people = people
        self.binder.poll()
        return self.ids

    @property
    def ids(self) -> dict[str, str]:
        dynamic = user_repositories.load(self.path)
        ids = {path: entry.owner_id for path, entry in dynamic.repositories.items()}
        return ids | {old: note.owner_id for old, note in dynamic.renamed.items()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def enabled(person_id: str) -> PersonState:
    return PersonState("enabled", person_id=person_id)


def test_entries_and_former_paths_are_bound_to_the_people_of_today(site: Site) -> None:
    owners = site.look(alice=enabled(TODAY), bob=PersonState("disabled", person_id=FORMER))
    assert owners == {
        "people/alice/x": TODAY,
        "people/bob/x": FORMER,
        "people/bob/y": FORMER,
        "people/bob/old": FORMER,
    }
    assert site.logged == ["event=owner-binding bound=3 notes=1"]
    site.asked.clear()
    assert site.look() == owners
    assert site.asked == [], "nothing is left to ask about"


@pytest.mark.parametrize(
    "bob", [PersonState("missing"), PersonState("unclear"), PersonState("enabled")]
)
def test_an_owner_who_is_not_surely_known_is_bound_later(site: Site, bob: PersonState) -> None:
    assert site.look(alice=enabled(TODAY), bob=bob) == {
        "people/alice/x": TODAY,
        "people/bob/x": "",
        "people/bob/y": "",
        "people/bob/old": "",
    }
    assert site.look(bob=enabled(FORMER))["people/bob/old"] == FORMER


def test_what_is_older_than_its_owner_is_left_to_the_operators(site: Site) -> None:
    owners = site.look(alice=enabled(TODAY), bob=enabled(LATER))
    assert [path for path, owner_id in owners.items() if not owner_id] == [
        "people/bob/x",
        "people/bob/y",
        "people/bob/old",
    ]
    assert "2 repositories are older than the entries of their owners" in site.logged[-1]
    site.look(alice=enabled(TODAY), bob=enabled(LATER))
    assert sum("older" in line for line in site.logged) == 1, "it is told once"


def test_a_mirror_and_a_directory_that_is_away_change_nothing(site: Site) -> None:
    assert set(site.look().values()) == {""}
    assert "no server answers" in site.logged[0]
    site.refusal = "this host has copies"
    assert set(site.look(alice=enabled(TODAY), bob=enabled(TODAY)).values()) == {""}


def test_one_change_of_the_file_binds_a_bounded_number(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_binding, "MOST_AT_A_TIME", 2)
    owners = site.look(alice=enabled(TODAY), bob=enabled(FORMER))
    assert "" not in owners.values()
    assert site.logged == [
        "event=owner-binding bound=2 notes=1",
        "event=owner-binding bound=1 notes=0",
    ]


@pytest.mark.parametrize(
    ("owner_id", "person", "state"),
    [
        (FORMER, enabled(FORMER), TODAYS),
        (FORMER, enabled(TODAY), ANOTHER),
        (FORMER, PersonState("disabled", person_id=TODAY), ANOTHER),
        ("", enabled(TODAY), UNBOUND),
        (FORMER, PersonState("missing"), ABSENT),
        (FORMER, PersonState("unclear"), UNKNOWN),
        (FORMER, enabled(""), UNKNOWN),
        (FORMER, None, UNKNOWN),
    ],
)
def test_an_owner_is_compared_with_the_person_of_today(
    owner_id: str, person: PersonState | None, state: str
) -> None:
    assert owner_binding.state_of(owner_id, person) == state

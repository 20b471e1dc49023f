"""`hgfleet owners`: who is not today's person of a name, and binding by hand."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.auth import token_file
from hgfleet.auth.tokens import Token
from hgfleet.core import logfmt
from hgfleet.core.errors import UnavailableError
from hgfleet.directory import person_state
from hgfleet.directory.person_state import PersonState
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename

if TYPE_CHECKING:
    from pathlib import Path

MADE = "2026-01-01T00:00:00Z"
FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
TOKEN = Token("bob", "ab" * 32, "CI", MADE, "2099-01-01T00:00:00Z", owner_id=FORMER)


class Site:
    """A primary whose directory was filled again: bob and alice have new ids, carol left."""

    def __init__(self, folder: Path) -> None:
        self.file, self.tokens = str(folder / "registry.json"), str(folder / "tokens.json")
        self.hgrc = folder / "hgrc"
        self.hgrc.write_text("")
        self.said: list[str] = []
        self.people = {name: PersonState("enabled", person_id=TODAY) for name in ("alice", "bob")}
        self.people |= {"dave": PersonState("enabled", person_id=FORMER)}
        self.people |= {"carol": PersonState("missing")}
        with dynamic_update.update(self.file) as entries:
            for name in ("alice", "bob", "carol", "dave"):
                entries[f"people/{name}/x"] = Entry(name, "", MADE, owner_id=FORMER)
            entries["people/bob/new"] = Entry("bob", "", MADE)
            note = Rename("people/bob/x", "bob", MADE, FORMER)
            entries.note_rename("people/bob/old", note)
        with token_file.update(self.tokens) as kept:
            kept["bbbbbbbb"] = TOKEN

    def ask(self, person: str, socket: str) -> PersonState:
        assert socket == "/run/people"
        if person not in self.people:
            raise UnavailableError("no server answers")
        return self.people[person]

    def run(self, *words: str) -> int:
        options = ["--dynamic", self.file, "--tokens", self.tokens, "--hgrc", str(self.hgrc)]
        options += ["--people", "/run/people", "--user", getpass.getuser()]
        return cli.main(["owners", *options, *words])

    @property
    def ids(self) -> dict[str, str]:
        dynamic = user_repositories.load(self.file)
        ids = {path: entry.owner_id for path, entry in dynamic.repositories.items()}
        ids |= {old: note.owner_id for old, note in dynamic.renamed.items()}
        return ids | {name: token.owner_id for name, token in token_file.load(self.tokens).items()}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setattr(os, "setgroups", lambda _groups: None)
    monkeypatch.setattr(logfmt, "to_syslog", lambda _: made.said.append)
    monkeypatch.setattr(person_state, "ask", made.ask)
    return made


def test_owners_who_are_not_todays_people_are_listed(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run() == 0
    assert capsys.readouterr().out.splitlines() == [
        f"alice: 1 repositories; another person than today's ({FORMER})",
        "bob: 1 repositories; not bound yet",
        f"bob: 1 repositories, 1 paths, 1 tokens; another person than today's ({FORMER})",
        f"carol: 1 repositories; no user has the name today ({FORMER})",
        "owners=5 others=4",
    ]


def test_all_of_a_name_is_bound_to_the_person_of_today(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    before = site.ids
    assert site.run("bind", "bob", "--check") == 0
    assert site.ids == before
    assert "would be bound: repositories=2 paths=1 tokens=1" in capsys.readouterr().out
    assert site.run("bind", "bob") == 0
    changed = {name for name, owner_id in site.ids.items() if owner_id != before[name]}
    assert changed == {"people/bob/x", "people/bob/new", "people/bob/old", "bbbbbbbb"}
    assert {site.ids[name] for name in changed} == {TODAY}
    assert site.said[0].startswith("event=owners action=bind names=bob ")


def test_a_directory_that_was_filled_anew_is_bound_with_one_command(site: Site) -> None:
    assert site.run("bind", "--all") == 0
    left = {path for path, owner_id in site.ids.items() if owner_id == FORMER}
    # No person is carol today, and dave is who he was.
    assert left == {"people/carol/x", "people/dave/x"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "got neither names nor --all"),
        (("bob", "--all"), "or both"),
        (("bob", "carol"), "carol: got 'missing' from the directory"),
        (("eve",), "eve: got 'no server answers' from the directory"),
    ],
)
def test_who_is_not_known_is_bound_to_nothing(
    site: Site, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    before = site.ids
    assert site.run("bind", *words) == 2
    assert said in capsys.readouterr().err
    assert site.ids == before


def test_a_mirror_binds_nothing(site: Site) -> None:
    site.hgrc.write_text("[hgfleet]\nreplica-of = hg1\nssh-url = ssh://hg@hg\n")
    before = site.ids
    assert site.run("bind", "--all") == 75
    assert site.ids == before


def test_binding_changes_nothing_else_of_an_entry(site: Site) -> None:
    with dynamic_update.update(site.file) as entries:
        entries["people/bob/x"] = replace(entries["people/bob/x"], description="kept")
    assert site.run("bind", "bob") == 0
    assert user_repositories.load(site.file).repositories["people/bob/x"].description == "kept"

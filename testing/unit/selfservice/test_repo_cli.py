"""`hgfleet repo`: administration of the repositories that people created."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.core import identity, logfmt
from hgfleet.core.errors import UnavailableError
from hgfleet.directory import person_state
from hgfleet.directory.person_state import PersonState
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Settings, build
from hgfleet.selfservice import repo_cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MADE = "2026-01-01T00:00:00Z"
FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"


def ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Site:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "dynamic/registry.json"
        self.repos = path / "repos"
        self.repos.mkdir()
        self.people = {name: PersonState("enabled", person_id=TODAY) for name in ("bob", "carol")}
        self.people["eve"] = PersonState("missing")
        self.file.parent.mkdir()
        self.declare()
        self.make("people/bob/live", Entry("bob", "Bob's", MADE))
        self.make("people/bob/old", Entry("bob", "Old", MADE, archived=ago(31)))
        self.make("people/carol/young", Entry("carol", "", MADE, read=(), archived=ago(29)))

    def ask(self, person: str, _socket: str) -> PersonState:
        if person not in self.people:
            raise UnavailableError("no server answers")
        return self.people[person]

    def declare(self, *paths: str) -> None:
        static = build(
            {path: ("Declared", Settings()) for path in ("hgfleet", *paths)},
            {"people": Namespace("people", "", create=("sandbox",), personal=True)},
        )
        (self.path / "registry.json").write_text(dump_compiled(static))

    def make(self, path: str, entry: Entry) -> None:
        (self.repos / path / ".hg/store").mkdir(parents=True)
        (self.repos / path / ".hg/store/history").write_text("history")
        entry = replace(entry, identity=identity.made())
        (self.repos / path / identity.FILE).write_text(identity.text(entry.identity))
        with dynamic_update.update(self.file) as entries:
            entries[path] = entry

    def run(self, *words: str) -> int:
        command, *rest = words
        options = ["--registry", str(self.path / "registry.json"), "--dynamic", str(self.file)]
        options += ["--root", str(self.repos), "--user", getpass.getuser()]
        options += ["--manifests", str(self.path / "manifests")]
        return cli.main(["repo", command, *options, *rest])

    def is_archived(self, path: str) -> bool:
        return self.entries[path].archived is not None

    @property
    def entries(self) -> dict[str, Entry]:
        return dict(user_repositories.load(self.file).repositories)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # The process that runs the tests keeps its groups, and its log stays with it.
    monkeypatch.setattr(os, "setgroups", lambda _groups: None)
    monkeypatch.setattr(logfmt, "to_syslog", lambda _: lambda text: said.append(text))
    said: list[str] = []
    mask = os.umask(0o022)
    made = Site(tmp_path)
    monkeypatch.setattr(person_state, "ask", made.ask)
    yield made
    os.umask(mask)
    assert all("event=repo action=" in line for line in said)


def test_list_shows_owner_state_and_readers(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["REPOSITORY", "OWNER", "CREATED", "STATE", "READ", "DESCRIPTION"]
    assert lines[1].split() == ["people/bob/live", "bob", "2026-01-01", "served", "public", "Bob's"]
    assert "owner" in lines[3]
    assert site.run("list", "--archived", "people/bob/*") == 0
    (_, only) = capsys.readouterr().out.splitlines()
    assert only.startswith("people/bob/old")


def test_an_entry_that_makes_no_sense_is_told(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    text = site.file.read_text().replace('"owner": "carol"', '"owner": "Carol"')
    site.file.write_text(text)
    assert site.run("list") == 0
    captured = capsys.readouterr()
    assert "people/carol/young" not in captured.out
    assert "warning: 'people/carol/young': owner: got 'Carol'" in captured.err


def test_purge_deletes_only_repositories_that_have_waited(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("purge", "--check") == 0
    said = capsys.readouterr().out
    assert "people/bob/old: would be deleted" in said
    assert said.endswith("would delete=1\n")
    assert len(site.entries) == 3
    assert site.run("purge") == 0
    assert set(site.entries) == {"people/bob/live", "people/carol/young"}
    assert not (site.repos / "people/bob/old").exists()
    assert (site.repos / "people/carol/young/.hg/store/history").exists()
    assert list((site.repos / ".purged").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--older-than", "1d"], "30d or more"),
        (["--older-than", "0"], "30d or more"),
        (["--older-than", "-40d"], "30d or more"),
        (["--older-than", "1y"], "30d or more"),
        (["people/carol/young"], "for less than 30 days"),
        (["--now", "people/carol/young"], "name the repository twice"),
        (["--now", "people/bob/old", "people/carol/young"], "name the repository twice"),
        (["--now", "people/bob/live", "people/bob/live"], "in service; archive it first"),
        (["--now", "hgfleet", "hgfleet"], "no user created it over SSH"),
        (["--now", "../x", "../x"], "no user created it over SSH"),
    ],
)
def test_purge_refuses_repositories_that_have_not_waited(
    site: Site, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    if words[0] == "--older-than" and words[1].startswith("-"):
        words = [f"--older-than={words[1]}"]
    assert site.run("purge", *words) == 2
    assert expected in capsys.readouterr().err
    assert len(site.entries) == 3
    assert all((site.repos / path / ".hg").is_dir() for path in site.entries)


def test_one_named_twice_goes_without_waiting(site: Site) -> None:
    gone = site.entries["people/carol/young"].identity
    assert site.run("purge", "--now", "people/carol/young", "people/carol/young") == 0
    assert set(site.entries) == {"people/bob/live", "people/bob/old"}
    # For bundle jobs and mirrors, which delete their data of it.
    assert set(user_repositories.load(site.file).purged) == {gone}
    # The folder of its owner is empty, and goes too.
    assert not (site.repos / "people/carol").exists()
    assert (site.repos / "people").exists()


def test_a_killed_purge_is_finished_by_the_next(site: Site) -> None:
    # A purge was killed before the entry was removed, and another before its data were.
    (site.repos / "people/bob/old").rename(site.path / "elsewhere")
    left = site.repos / ".purged/deadbeef/.hg"
    left.mkdir(parents=True)
    assert site.run("purge") == 0
    assert "people/bob/old" not in site.entries
    assert not left.exists()


def test_a_repository_declared_meanwhile_is_never_deleted(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.declare("people/bob/old")
    assert site.run("purge") != 0
    assert "registry.yml declares it now" in capsys.readouterr().err
    assert (site.repos / "people/bob/old/.hg/store/history").exists()
    assert site.run("archive", "people/bob/live") == 0
    site.declare("people/bob/live")
    assert site.run("restore", "people/bob/live") != 0


def test_an_earlier_state_in_place_needs_a_time(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("restore", "people/bob/live", "--in-place") == 2
    assert "expected --at TIME with it" in capsys.readouterr().err


def test_a_mirror_takes_no_earlier_state_in_place(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    hgrc = site.path / "hgrc"
    hgrc.write_text("[hgfleet]\nreplica-of = hg1\nssh-url = ssh://hg@hg\n")
    words = ["people/bob/live", "--at", "now", "--in-place", "--hgrc", str(hgrc)]
    assert site.run("restore", *words) == 75
    assert "this host has copies, and its primary is hg1" in capsys.readouterr().err


def test_archive_restore_and_give(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run("archive", "people/bob/live") == 0
    assert site.is_archived("people/bob/live")
    assert site.run("archive", "people/bob/live") == 2
    assert site.run("restore", "people/bob/live") == 0
    assert not site.is_archived("people/bob/live")
    assert site.run("give", "people/bob/live", "carol") == 0
    given = site.entries["people/bob/live"]
    assert (given.owner, given.owner_id) == ("carol", TODAY)
    assert "owner = carol\n" in (site.repos / "people/bob/live/.hg/hgrc").read_text()
    assert site.run("give", "people/bob/live", "operator:root") == 2
    assert site.run("info", "people/bob/live") == 0
    assert "owner:        carol\n" in capsys.readouterr().out


def test_a_repository_of_a_former_person_is_told_and_can_be_given(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.make("people/bob/his", Entry("bob", "", MADE, owner_id=FORMER))
    site.make("people/carol/hers", Entry("carol", "", MADE, owner_id=TODAY))
    site.make("people/eve/left", Entry("eve", "", MADE, owner_id=FORMER))
    with dynamic_update.update(site.file) as entries:
        entries.note_rename("people/bob/was", Rename("people/bob/his", "bob", MADE, FORMER))
    assert site.run("info", "people/bob/his") == 0
    assert "owner:        bob (another person than today's bob)\n" in capsys.readouterr().out
    assert site.run("list", "people/*") == 0
    listed = capsys.readouterr()
    assert "people/bob/his      bob (another person than today's bob)  2026" in listed.out
    assert "people/eve/left     eve (no user has the name today)       2026" in listed.out
    assert "people/carol/hers   carol                                  2026" in listed.out
    assert site.run("give", "people/bob/his", "bob") == 0
    assert "belongs to bob (before: another person of the name bob)" in capsys.readouterr().out
    assert site.entries["people/bob/his"].owner_id == TODAY
    assert user_repositories.load(site.file).renamed["people/bob/was"].owner_id == TODAY


def test_a_repository_is_given_to_nobody_whom_the_directory_does_not_know(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("give", "people/bob/live", "eve") == 2
    assert "eve: got 'missing' from the directory" in capsys.readouterr().err
    site.people.clear()
    assert site.run("give", "people/bob/live", "carol") == 69
    assert site.entries["people/bob/live"].owner == "bob"


def test_a_long_list_does_not_ask_about_each_owner(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(repo_cli, "MOST_ASKED", 1)
    site.make("people/bob/his", Entry("bob", "", MADE, owner_id=FORMER))
    site.make("people/eve/left", Entry("eve", "", MADE, owner_id=FORMER))
    assert site.run("list") == 0
    said = capsys.readouterr()
    assert "another person" not in said.out
    assert "2 owners are not compared with today's people" in said.err
    assert site.run("list", "people/bob/*") == 0
    assert "another person" in capsys.readouterr().out

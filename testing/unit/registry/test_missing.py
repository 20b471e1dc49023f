"""Repositories that left the registry without a deletion, and how they come back."""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core import identity
from hgfleet.core.errors import ConfigurationError, RegistryError, UsageError
from hgfleet.registry import cli
from hgfleet.registry.dynamic import dynamic_update, missing, repair, user_repositories
from hgfleet.registry.dynamic.missing import Missing
from testing.support.user_repository_file import BOB, written

if TYPE_CHECKING:
    from pathlib import Path

A, B = "1" * 32, "2" * 32
MINE = replace(BOB, identity=A, read=())
NOW = "2026-11-21T00:00:00Z"
NOTE = Missing(A, "people/bob/x", NOW, MINE.to_json())


def registry(
    raw: dict[str, Any] | None = None,
    identities: dict[str, str] | None = None,
    purged: dict[str, str] | None = None,
) -> user_repositories.Dynamic:
    return user_repositories.dynamic_of(raw or {}, {}, identities or {}, purged or {})


def test_what_leaves_without_a_deletion_is_noted_with_its_entry() -> None:
    before = registry({"people/bob/x": MINE.to_json(), "odd": 7}, {"team/tool": B})
    noted = missing.updated({}, before, registry(), NOW)
    assert noted == {A: NOTE, B: Missing(B, "team/tool", NOW)}
    # A deleted repository is not missing, and a renamed repository is not either.
    after = registry({"people/bob/y": MINE.to_json()}, purged={B: NOW})
    assert missing.updated({}, before, after, NOW) == {}


def test_a_note_stays_until_its_repository_is_back_or_deleted() -> None:
    noted = {A: NOTE}
    assert missing.updated(noted, registry(), registry(), "2026-12-01T00:00:00Z") == noted
    for after in (
        registry({"z": MINE.to_json()}),
        registry({}, {"z": A}),
        registry(purged={A: NOW}),
    ):
        assert missing.updated(noted, registry(), after, NOW) == {}


def test_the_oldest_notes_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "MOST", 1)
    before = registry({}, {"team/tool": B})
    assert list(missing.updated({A: NOTE}, before, registry(), "2026-12-01T00:00:00Z")) == [B]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"missing": 5}', '{"missing": [{"identity": "x"}]}'),
        '{"missing": [{"identity": "x", "path": "a", "since": "", "entry": null}]}',
    ],
)
def test_notes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(RegistryError, match="standard input: not"):
        missing.parse(text.encode(), "standard input")


@pytest.fixture
def primary(tmp_path: Path) -> SimpleNamespace:
    dynamic, root = tmp_path / "dynamic/registry.json", tmp_path / "repos"
    dynamic.parent.mkdir()
    place = root / "people/bob/x"
    (place / ".hg/store").mkdir(parents=True)
    (place / identity.FILE).write_text(identity.text(A))
    (tmp_path / "hgrc").write_text("")
    return SimpleNamespace(dynamic=dynamic, root=root, place=place, folder=tmp_path)


def run(primary: SimpleNamespace, *line: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    places = ["--dynamic", primary.dynamic, "--root", primary.root]
    more = [*places, "--hgrc", primary.folder / "hgrc", "--user", "root"]
    options = parser.parse_args(["registry", *line, *map(str, more)])
    code: int = options.run(options)
    return code


@pytest.fixture(autouse=True)
def keep_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "become", lambda _user: None)


@pytest.mark.parametrize("name", [A, "people/bob/x"])
def test_a_repository_comes_back_with_its_readers_by_one_command(
    primary: SimpleNamespace, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(primary.dynamic, people__bob__x=MINE)
    primary.dynamic.write_text('{"format": 1, "repositories": {}}')
    dynamic_update.renew(primary.dynamic)
    assert run(primary, "bring-back") == 0
    assert f"people/bob/x {A} since " in capsys.readouterr().out
    assert run(primary, "bring-back", name) == 0
    assert user_repositories.load(primary.dynamic).repositories["people/bob/x"] == MINE
    capsys.readouterr()
    run(primary, "bring-back")
    assert capsys.readouterr().out == "no repository is missing\n"


def test_the_notes_of_a_mirror_bring_a_repository_back(
    primary: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = missing.text([NOTE]).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    run(primary, "bring-back", "--from", "-", "people/bob/x")
    assert user_repositories.load(primary.dynamic).repositories["people/bob/x"] == MINE


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (replace(NOTE, identity=B), "deleted it"),
        (replace(NOTE, entry=None), "registry.yml"),
        (replace(NOTE, path="people/bob/y"), "another repository has this path"),
        (replace(NOTE, path="people/bob/z"), "its folder is not there"),
        (replace(NOTE, entry={"owner": 5}), "a wrong value"),
    ],
)
def test_what_cannot_come_back_says_why(
    primary: SimpleNamespace, note: Missing, words: str
) -> None:
    with dynamic_update.update(primary.dynamic) as entries:
        entries["people/bob/y"] = BOB
        entries.note_purged(B)
    before = primary.dynamic.read_bytes()
    with pytest.raises(UsageError, match=words):
        repair.bring_back(primary.dynamic, primary.root, [note.path], print, {note.identity: note})
    with pytest.raises(UsageError, match="got 0 missing repositories, expected one of: people"):
        repair.bring_back(primary.dynamic, primary.root, ["x"], print, {note.identity: note})
    assert primary.dynamic.read_bytes() == before


def test_an_operator_forgets_old_deletions_on_the_primary(
    primary: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with dynamic_update.update(primary.dynamic) as entries:
        entries._purged = {A: "2020-01-01T00:00:00Z", B: user_repositories.now()}
    run(primary, "forget-deletions")
    assert capsys.readouterr().out == "1 deletions forgotten\n"
    assert set(user_repositories.load(primary.dynamic).purged) == {B}
    with pytest.raises(UsageError, match="expected 1 day or more"):
        run(primary, "forget-deletions", "--older-than", "0")
    (primary.folder / "hgrc").write_text("[hgfleet]\nreplica-of = hg1\n")
    for command in ("bring-back", "forget-deletions"):
        with pytest.raises(ConfigurationError, match="run it on its primary, hg1"):
            run(primary, command)

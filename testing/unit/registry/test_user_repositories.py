"""The dynamic part of the registry: repositories that people created."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hgfleet.core.errors import RegistryError
from hgfleet.core.principal import Principal
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model import registry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.permissions import may_push, may_read
from hgfleet.registry.model.registry import Namespace, Registry, Settings, build
from testing.support.user_repository_file import BOB, written

TOP = Path(__file__).resolve().parents[3]

STATIC: Registry = build(
    {"hgfleet": ("This service", Settings()), "team/plans": ("Plans", Settings(read=("staff",)))},
    {
        "people": Namespace("people", settings=Settings(push=(), bundles=())),
        "team": Namespace("team", settings=Settings(read=("team",), push=("team",))),
    },
    Settings(push=("maintainers",)),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "dynamic").mkdir()
    return tmp_path / "dynamic/registry.json"


def effective(file: Path, complaints: list[str] | None = None) -> Registry:
    compiled = file.parent.parent / "registry.json"
    compiled.write_text(dump_compiled(STATIC))
    return user_repositories.load_effective(
        compiled, file, (complaints if complaints is not None else []).append
    )


# --- what comes out -------------------------------------------------------------------------


def test_no_file_is_no_entries(file: Path) -> None:
    assert list(effective(file).repositories) == ["hgfleet", "team/plans"]


def test_an_entry_is_a_repository_with_what_its_namespace_says(file: Path) -> None:
    written(file, people__bob__x=BOB, team__tool=Entry("bob", "", "2026-11-21T00:00:00Z"))
    repositories = effective(file).repositories
    assert list(repositories) == ["hgfleet", "people/bob/x", "team/plans", "team/tool"]
    mine = repositories["people/bob/x"]
    assert (mine.read, mine.push, mine.bundles) == ("public", (), ())
    assert (mine.description, mine.owner) == ("Bob's", "bob")
    assert (repositories["team/tool"].read, repositories["team/tool"].push) == (
        ("team",),
        ("team",),
    )


def test_the_owner_of_a_private_one_reads_and_pushes_and_nobody_else_does(file: Path) -> None:
    written(file, people__bob__x=Entry("bob", "", "2026-11-21T00:00:00Z", read=()))
    private = effective(file).repositories["people/bob/x"]
    assert may_read(private, Principal("bob"))
    assert may_push(private, Principal("bob"))
    assert not may_read(private, Principal("alice", frozenset({"maintainers"})))
    assert not may_read(private, None)


def test_an_entry_has_the_person_id_of_its_owner(file: Path) -> None:
    person_id = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
    made = "2026-11-21T00:00:00Z"
    entry = Entry("bob", "", made, read=(), owner_id=person_id)
    written(file, people__bob__x=entry)
    assert user_repositories.load(file).repositories["people/bob/x"] == entry
    private = effective(file).repositories["people/bob/x"]
    assert may_read(private, Principal("bob", person_id=person_id))
    assert not may_read(private, Principal("bob", person_id=person_id.replace("b", "c")))
    with pytest.raises(ValueError, match="owner_id: got 'bob'"):
        Entry.from_json({**entry.to_json(), "owner_id": "bob"})
    # As a release before wrote it.
    former = {name: value for name, value in entry.to_json().items() if name != "owner_id"}
    assert Entry.from_json(former).owner_id == ""


def test_an_archived_one_is_not_served_and_its_bundles_have_to_go(file: Path) -> None:
    written(
        file,
        people__bob__x=Entry(
            "bob", "", "2026-11-21T00:00:00Z", archived="2026-11-21T00:00:01Z", read="public"
        ),
    )
    assert "people/bob/x" not in effective(file).repositories
    (gone,) = user_repositories.withdrawn(STATIC, user_repositories.load(file))
    assert (gone.path, gone.is_public, gone.bundles) == ("people/bob/x", False, ())


@pytest.mark.parametrize("path", ["hgfleet", "hgfleet/inside", "team/plans/deep/inside"])
def test_the_inventory_wins_over_an_entry_at_or_below_its_paths(file: Path, path: str) -> None:
    written(file, **{path: BOB})
    repositories = effective(file).repositories
    assert list(repositories) == ["hgfleet", "team/plans"]
    assert all(repository.owner is None for repository in repositories.values())
    assert user_repositories.shadowed(STATIC, user_repositories.load(file)) == {
        path: "hgfleet" if path.startswith("hgfleet") else "team/plans"
    }


def test_an_entry_is_only_worked_out_when_it_is_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session needs one repository of thousands."""
    written(file, **{f"people/bob/r{number}": BOB for number in range(100)})
    known = effective(file)
    made = []
    plain = registry.effective

    def counting(path: str, *arguments: Any, **more: Any) -> registry.Repository:
        made.append(path)
        return plain(path, *arguments, **more)

    monkeypatch.setattr(registry, "effective", counting)
    assert known.repositories.get("people/bob/r7") is not None
    assert known.repositories.get("people/bob/r7") is not None
    assert known.repositories.get("people/bob/other") is None
    assert made == ["people/bob/r7"]
    assert len(known.repositories) == 102


# --- what is wrong in the file --------------------------------------------------------------

GOOD = BOB.to_json()
WRONG: dict[str, Any] = {
    "no mapping": [],
    "no owner": {name: value for name, value in GOOD.items() if name != "owner"},
    "an operator as owner": {**GOOD, "owner": "operator:root"},
    "a number as owner": {**GOOD, "owner": 7},
    "read is a text": {**GOOD, "read": "staff"},
    "read has no names": {**GOOD, "read": ["a b"]},
    "read has the name public": {**GOOD, "read": ["public"]},
    "push is a text": {**GOOD, "push": "staff"},
    "push for everybody": {**GOOD, "push": "public"},
    "two lines": {**GOOD, "description": "a\n[hooks]\nx = y"},
    "an escape sequence": {**GOOD, "description": "\x1b[2J"},
    "text that runs backwards": {**GOOD, "description": "\u202eabc"},
    "a long description": {**GOOD, "description": "a" * 201},
    "no description": {**GOOD, "description": None},
    "a strange time": {**GOOD, "created": "yesterday"},
    "archived is true": {**GOOD, "archived": True},
    "forked from outside": {**GOOD, "forked_from": "../x"},
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_an_entry_that_makes_no_sense_harms_no_other(file: Path, value: Any) -> None:
    data = {"format": 1, "repositories": {"people/bob/bad": value, "people/bob/good": GOOD}}
    file.write_text(json.dumps(data))
    complaints: list[str] = []
    assert list(effective(file, complaints).repositories) == [
        "hgfleet",
        "people/bob/good",
        "team/plans",
    ]
    assert complaints == []
    (problem,) = user_repositories.load(file).problems()
    assert problem.startswith("'people/bob/bad': ")
    assert problem.endswith("; nothing serves it")
    # Changing another entry keeps it for the operator to look at.
    written(file, people__bob__new=BOB)
    assert json.loads(file.read_text())["repositories"]["people/bob/bad"] == value


@pytest.mark.parametrize(
    "path", ["", "/etc", "../x", "people//x", "People/x", "people/.hg", "x.hg", "static/x", "a\nb"]
)
def test_a_path_that_no_registry_would_have_is_not_served(file: Path, path: str) -> None:
    file.write_text(json.dumps({"format": 1, "repositories": {path: GOOD}}))
    assert list(effective(file).repositories) == ["hgfleet", "team/plans"]
    with pytest.raises(ValueError, match="expected"), dynamic_update.update(file) as entries:
        entries[path] = BOB


DAMAGED = {
    "empty": b"",
    "half": b'{"format": 1, "repositories": {"people/b',
    "a list": b"[]",
    "nothing in it": b"{}",
    "another format": b'{"format": 2, "repositories": {}}',
    "repositories in a list": b'{"format": 1, "repositories": []}',
    "not UTF-8": b'{"format": 1, "repositories": {"\xff": {}}}',
    "zeros, as after a crash": b"\0" * 4096,
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_takes_nothing_of_the_inventory_away(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    complaints: list[str] = []
    assert list(effective(file, complaints).repositories) == ["hgfleet", "team/plans"]
    assert len(complaints) == 1
    assert str(file) in complaints[0]
    # No command overwrites a file that an operator may still repair.
    with pytest.raises(RegistryError), dynamic_update.update(file) as entries:
        entries["people/bob/x"] = BOB
    assert file.read_bytes() == content


def test_a_link_is_not_followed(file: Path) -> None:
    elsewhere = file.parent.parent / "elsewhere.json"
    elsewhere.write_text(json.dumps({"format": 1, "repositories": {"people/bob/x": GOOD}}))
    file.symlink_to(elsewhere)
    complaints: list[str] = []
    assert "people/bob/x" not in effective(file, complaints).repositories
    assert "cannot be read" in complaints[0]


def test_a_pipe_keeps_nobody_waiting(file: Path) -> None:
    os.mkfifo(file)
    with pytest.raises(RegistryError, match="something else than a file"):
        user_repositories.load(file)


def test_a_file_without_end_is_not_read(file: Path) -> None:
    with file.open("wb") as made:
        made.truncate(user_repositories.MAX_SIZE + 1)
    with pytest.raises(RegistryError, match="more than"):
        user_repositories.load(file)


def test_a_session_imports_nothing_slow_for_it(file: Path) -> None:
    written(file, people__bob__x=BOB)
    effective(file)
    code = (
        "import sys; from hgfleet.registry.dynamic import user_repositories; "
        "known = user_repositories.load_effective(sys.argv[1], sys.argv[2]); "
        "assert known.repositories['people/bob/x'].owner == 'bob'; "
        "slow = {'argparse', 'difflib', 'fcntl', 'pathlib', 'shutil', 'subprocess', 'tempfile', "
        "'yaml', 'mercurial'} & set(sys.modules); "
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )
    words = [sys.executable, "-S", "-c", code, str(file.parent.parent / "registry.json"), str(file)]
    done = subprocess.run(
        words, cwd=TOP, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(TOP)}
    )
    assert done.returncode == 0, done.stderr

"""People or the registry without the rest: the tasks and the restarts of --only."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.deploy import cli, only, run, trees, ways
from controller.deploy.decide import DeployError, HostState

ROOT = Path(__file__).resolve().parents[3]
ROLES = ROOT / "ansible/roles"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("people", ("people",)),
        ("registry,people", ("people", "registry")),
        ("people, people", ("people",)),
    ],
)
def test_parts_come_in_their_order_and_once(text: str, expected: tuple[str, ...]) -> None:
    assert only.parts(text) == expected


@pytest.mark.parametrize(
    ("text", "got"), [("web", "web"), ("people,base,x", "base and x"), ("", "nothing")]
)
def test_a_part_that_restarts_programs_is_refused_with_the_reason(text: str, got: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"got {got}, expected people, registry"):
        only.parts(text)


@pytest.mark.parametrize(
    "other", [("--rollback",), ("--upgrade-os",), ("--release", "hgfleet-0.1.0.tar.gz")]
)
def test_only_goes_with_no_other_release_and_no_rollback(
    other: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["production", "--only", "people", *other])
    assert "not allowed with argument" in capsys.readouterr().err


def tasks_of(file: Path) -> list[dict[str, Any]]:
    """Return the tasks of a file, and of the files that they include."""
    tasks = []
    for task in yaml.safe_load(file.read_text()):
        tasks.append(task)
        for kind in ("include_tasks", "import_tasks"):
            of = task.get(f"ansible.builtin.{kind}", {})
            name = of if isinstance(of, str) else of.get("file", "")
            if name and "{{" not in name:
                inner = tasks_of(file.parent / name)
                tags = of.get("apply", {}).get("tags", []) if isinstance(of, dict) else []
                tasks += [{**nested, "tags": [*tags, *nested.get("tags", ())]} for nested in inner]
    return tasks


WRITES = {
    "people": {"ldap_search", "set_fact", "ldap_entry", "ldap_attrs", "ldap_passwd"},
    "registry": {"copy", "command"},
}


def test_a_task_of_a_part_writes_data_and_restarts_nothing() -> None:
    tagged: dict[str, list[dict[str, Any]]] = {part: [] for part in only.PARTS}
    for file in ROLES.glob("*/tasks/main.yml"):
        for task in tasks_of(file):
            for part in set(only.PARTS).intersection(task.get("tags", ())):
                tagged[part].append(task)
    for part, tasks in tagged.items():
        assert not [task["name"] for task in tasks if "notify" in task]
        modules = {key.rpartition(".")[2] for task in tasks for key in task if "." in key}
        assert modules - {"include_tasks"} == WRITES[part]


def test_a_run_that_leaves_a_part_out_still_refuses_a_former_primary() -> None:
    """--skip-tags leaves out every task with the tag: no play of site.yml may have it."""
    plays = [
        play
        for book in (ROOT / "ansible").glob("**/*.yml")
        if book.name == "site.yml" or book.parent.name in ("playbooks", "internal", "roll")
        for play in yaml.safe_load(book.read_text()) or ()
    ]
    tags = [set(play.get("tags", ())) for play in plays]
    assert not [names for names in tags if names & set(only.PARTS)]
    assert [names for names in tags if "primary" in names]


def test_files_that_differ_are_named_with_all_that_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = run.Site("site", tmp_path / "site/hosts.yml", {"hg1": [], "hg2": []})
    older, last = (ways.Way("r", "tree", name) for name in ("site1", "site2"))
    states = {
        "hg1": HostState(current="r", record=ways.done(None, last, 2.0)),
        "hg2": HostState(current="r", record=ways.done(None, older, 1.0)),
    }
    for name, text in (("site", "b"), ("site2", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "web.yml").write_text(text)

    def find(way: ways.Way) -> trees.Kept:
        return trees.Kept(tmp_path, tmp_path / way.inventory / "hosts.yml")

    monkeypatch.setattr(trees, "find", find)
    assert only.left_out(site, states).endswith("these files differ: web.yml.")

    def gone(_way: ways.Way) -> trees.Kept:
        raise DeployError("gone", "")

    monkeypatch.setattr(trees, "find", gone)
    assert only.left_out(site, states) == "All else stays as it is on the hosts."

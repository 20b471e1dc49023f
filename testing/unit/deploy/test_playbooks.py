"""The playbooks that ./deploy names are there."""

from __future__ import annotations

import ast

import pytest

from controller.bootstrap import ROOT
from controller.deploy import books, run

FOLDERS = {"PLAYBOOKS": run.PLAYBOOKS, "INTERNAL": run.INTERNAL, "FOLDER": books.FOLDER}
MODULES = sorted(path.name for path in (ROOT / "controller/deploy").glob("*.py"))


def named(text: str) -> list[tuple[str, str]]:
    """Return the folder and the name of each `FOLDER / "name.yml"`."""
    named_books = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.BinOp(
                left=ast.Name(id=folder) | ast.Attribute(attr=folder),
                op=ast.Div(),
                right=ast.Constant(value=str() as name),
            ) if folder in FOLDERS and name.endswith(".yml"):
                named_books.append((folder, name))
    return named_books


@pytest.mark.parametrize("module", MODULES)
def test_a_playbook_that_a_module_names_is_a_file(module: str) -> None:
    for folder, name in named((ROOT / "controller/deploy" / module).read_text()):
        assert (FOLDERS[folder] / name).is_file(), f"{folder} / {name}"


@pytest.mark.parametrize("step", ["drain", "check", "ready", "open", "record"])
def test_the_playbook_of_a_step_of_the_roll_is_a_file(step: str) -> None:
    assert books.path_of(step).is_file()


def test_names_of_playbooks_are_found() -> None:
    assert named('x = run.INTERNAL / "state.yml"') == [("INTERNAL", "state.yml")]
    lease = (ROOT / "controller/deploy/lease.py").read_text()
    assert named(lease) == [("INTERNAL", "lock.yml")]

"""The order of the parts of controller/, and circles in controller/ and testing/."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import ROOT
from controller.checks import controller_imports, house_rules

if TYPE_CHECKING:
    from pathlib import Path


def written(top: Path, **texts: str) -> list[str]:
    """Return the problems of a repository of these modules: `a__b` is a/b.py."""
    for name, text in {"hgfleet__cli": "", "testing__support__pace": "", **texts}.items():
        file = top / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return controller_imports.problems(top)


def test_a_part_may_import_those_before_it(tmp_path: Path) -> None:
    assert not written(
        tmp_path,
        controller__bootstrap="",
        controller__cluster__images="from controller import bootstrap",
        controller__deploy__run="def f():\n    from controller.cluster import images",
        controller__tests__cli="from controller.deploy import run\nimport testing.support.pace",
        controller__checks__docs="from controller.tests import cli\nimport hgfleet.cli",
    )


@pytest.mark.parametrize(
    ("part", "line", "told"),
    [
        ("bootstrap", "import hgfleet.cli", "bootstrap imports hgfleet.cli; it may import boot"),
        ("cluster", "from controller.deploy import run", "cluster imports controller.deploy.run;"),
        ("deploy", "from testing.support import pace", "deploy imports testing.support.pace; it"),
        ("deploy", "from controller.tests import cli", "deploy imports controller.tests.cli; it"),
        ("tests", "from controller.checks import docs", "tests imports controller.checks.docs;"),
        ("entry", "from controller.tests import cli", "it may import none of ours"),
        ("other", "", "the part other of controller/ has no place"),
    ],
)
def test_an_import_against_the_order_is_told(
    tmp_path: Path, part: str, line: str, told: str
) -> None:
    modules = {
        f"controller__{name}": ""
        for name in ("bootstrap", "deploy__run", "tests__cli", "checks__docs")
    }
    name = part if part in ("bootstrap", "entry", "other") else f"{part}__module"
    (problem,) = written(tmp_path, **{**modules, f"controller__{name}": line})
    assert told in problem


@pytest.mark.parametrize("folder", ["testing__e2e", "controller__deploy"])
def test_a_circle_is_told(tmp_path: Path, folder: str) -> None:
    dotted = folder.replace("__", ".")
    (problem,) = written(
        tmp_path,
        **{f"{folder}__a": f"from {dotted} import b", f"{folder}__b": f"from {dotted} import a"},
    )
    assert f"a circle of imports: {dotted}.a -> {dotted}.b -> {dotted}.a" in problem


def test_this_repository_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert controller_imports.problems(ROOT) == []
    monkeypatch.setattr(controller_imports, "problems", lambda _top: ["found"])
    assert "found" in house_rules.check(ROOT)

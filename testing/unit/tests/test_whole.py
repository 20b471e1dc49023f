"""Whole runs of the command: the gate with its records, and --all in several sittings."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from controller import attestation
from controller.tests import cli, execution, plan, preparation, record, sittings, tiers, worktree
from controller.tests.execution import Step

if TYPE_CHECKING:
    from pathlib import Path

TREE = "a" * 40
ROLES = ("base", "web")


class Site:
    """Tiers whose steps note that they ran, and fail where a file of their name is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = TREE

    def steps(self, tier: str, names: tuple[str, ...]) -> list[Step]:
        script = 'echo "$0" >>ran; test ! -e "fail-$0"'
        return [
            Step(tier, name, ["sh", "-c", script, f"{tier}-{name}"], cwd=self.folder)
            for name in names
        ]

    def ran(self) -> list[str]:
        """Return the steps that ran since the last call."""
        file = self.folder / "ran"
        names = sorted(file.read_text().split()) if file.exists() else []
        file.unlink(missing_ok=True)
        return names

    def breaks(self, name: str) -> Path:
        file = self.folder / f"fail-{name}"
        file.write_text("")
        return file

    @property
    def scenarios(self) -> dict[str, dict[str, str]]:
        return record.read_scenarios(self.folder / "tested/scenarios.json")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    fakes = {
        "lint": lambda _words, _only=None: made.steps("lint", ("ruff",)),
        "roles": lambda _words, only=None: made.steps("roles", tuple(only or ROLES)),
        "e2e": lambda _words, _only=None: made.steps("e2e", ("service",)),
    }
    for tier, steps in fakes.items():
        monkeypatch.setitem(tiers.TIERS, tier, steps)
    contents = {f"ansible/roles/{role}/x": role for role in ROLES}
    monkeypatch.setattr(plan, "GATE", tuple(fakes))
    monkeypatch.setattr(plan, "WHOLE", tuple(fakes))
    monkeypatch.setattr("controller.tests.arguments.GATE", tuple(fakes))
    monkeypatch.setattr("controller.tests.arguments.WHOLE", tuple(fakes))
    monkeypatch.setattr(preparation, "NEEDS", {})
    monkeypatch.setattr(execution, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(cli.bootstrap, "ensure_controller", lambda: None)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli.pace, "measure", lambda: 1.0)
    monkeypatch.setattr(cli, "group_of_run", contextlib.nullcontext)
    monkeypatch.setattr(worktree, "files", lambda: list(contents))
    monkeypatch.setattr(worktree, "sources", lambda _names: {"ansible/site.yml": ""})
    monkeypatch.setattr(worktree, "scenarios", lambda: list(ROLES))
    monkeypatch.setattr(worktree, "carried_roles", lambda: {n: frozenset({n}) for n in ROLES})
    monkeypatch.setattr(record, "content_of", contents.__getitem__)
    monkeypatch.setattr(attestation, "FOLDER", tmp_path / "attestations")
    monkeypatch.setattr(attestation, "tree_of", lambda: made.tree)
    monkeypatch.delenv(attestation.KEY_VARIABLE, raising=False)
    monkeypatch.setattr(record, "FOLDER", tmp_path / "tested")
    monkeypatch.setattr(sittings, "FOLDER", tmp_path / "whole")
    return made


def test_a_whole_run_goes_on_where_the_last_sitting_ended(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = site.breaks("roles-web")
    assert cli.main(["--all"]) == 1
    assert site.ran() == ["e2e-service", "lint-ruff", "roles-base", "roles-web"]
    assert not (site.folder / "tested/whole.json").exists()
    assert set(site.scenarios) == {"base"}
    broken.unlink()
    assert cli.main(["--all", "lint"]) == 0
    assert site.ran() == []
    assert "the whole has left: roles. Next sitting" in capsys.readouterr().err
    assert cli.main(["--all"]) == 0
    assert site.ran() == ["roles-web"]
    whole = json.loads((site.folder / "tested/whole.json").read_text())
    assert whole["tree"] == TREE
    assert {tier: of["passed"] for tier, of in whole["tiers"].items()} == {
        "lint": 1,
        "roles": 2,
        "e2e": 1,
    }
    assert attestation.path_of(TREE).exists()
    assert cli.main(["--all"]) == 0
    assert site.ran() == []
    capsys.readouterr()
    assert cli.main(["--all", "--plan"]) == 0
    assert capsys.readouterr().out.endswith("in whole.json was of this tree\n")


def test_another_tree_begins_its_whole_run_from_the_start(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--all"]) == 0
    site.ran()
    site.tree = "b" * 40
    assert cli.main(["--all", "--plan"]) == 0
    assert "was of tree aaaaaaaaaaaa, and this is tree bbbbbbbbbbbb" in capsys.readouterr().out
    assert cli.main(["--all", "lint", "roles"]) == 0
    assert site.ran() == ["lint-ruff", "roles-base", "roles-web"]


def test_the_gate_runs_what_is_not_recorded_and_attests_the_tree(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["roles:web"]) == 0
    assert site.ran() == ["roles-web"]
    assert cli.main([]) == 0
    assert site.ran() == ["e2e-service", "lint-ruff", "roles-base"]
    assert "they passed before with these files:\n  roles: web\n" in capsys.readouterr().out
    attested = attestation.parse(attestation.path_of(TREE).read_text())
    assert (attested.tiers["roles"].passed, attested.tiers["roles"].recorded) == (1, 1)
    assert cli.main([]) == 0
    assert site.ran() == ["e2e-service", "lint-ruff"]
    attested = attestation.parse(attestation.path_of(TREE).read_text())
    assert (attested.tiers["roles"].passed, attested.tiers["roles"].recorded) == (0, 2)
    assert not (site.folder / "tested/whole.json").exists()


@pytest.mark.usefixtures("site")
def test_only_the_gate_leaves_tests_out(monkeypatch: pytest.MonkeyPatch) -> None:
    narrowed: list[str] = []

    def of_gate(steps: list[Step]) -> list[Step]:
        narrowed.extend(step.name for step in steps)
        return steps

    monkeypatch.setattr(tiers, "of_gate", of_gate)
    assert cli.main(["--all"]) == 0
    assert cli.main(["lint", "e2e"]) == 0
    assert narrowed == []
    assert cli.main([]) == 0
    assert sorted(narrowed) == ["ruff", "service"]


def test_a_gate_that_fails_and_named_tiers_attest_nothing(site: Site) -> None:
    site.breaks("e2e-service")
    assert cli.main([]) == 1
    assert cli.main(["lint", "roles"]) == 0
    assert not attestation.path_of(TREE).exists()


def test_a_plan_runs_nothing(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--plan"]) == 0
    assert cli.main(["--plan", "--all"]) == 0
    (site.folder / "tested").mkdir()
    (site.folder / "tested/whole.json").write_text("[]")
    assert cli.main(["--plan", "--all"]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert ["runs", "roles:web", "no run of it is recorded"] in lines
    assert ["no", "whole", "run is recorded in whole.json"] in lines
    assert any("whole.json is no record" in " ".join(line) for line in lines)
    assert site.ran() == []
    assert not site.scenarios

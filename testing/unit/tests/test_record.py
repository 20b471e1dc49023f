"""The record of runs: digests of scenarios in the tree, and the sittings of a whole run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from controller import attestation
from controller.attestation import Figures
from controller.tests import plan, record, sittings, worktree
from controller.tests.choice import selection
from controller.tests.outcome import Failure, Outcome
from controller.tests.sittings import Sittings

if TYPE_CHECKING:
    from pathlib import Path

TREE, OTHER = "a" * 40, "b" * 40


# Digests.


def test_a_digest_has_each_name_and_content_in_no_order() -> None:
    content = {"a": "1", "b": "2"}.__getitem__
    before = record.digest(["a", "b"], content)
    assert record.digest(["b", "a", "a"], content) == before
    assert record.digest(["a"], content) != before
    assert record.digest(["a", "b"], {"a": "1", "b": "3"}.__getitem__) != before
    assert record.digest(["a", "b"], {"a": "2", "b": "1"}.__getitem__) != before


def test_the_content_of_a_file_has_its_bytes_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "x"
    seen = {record.content_of("x", tmp_path)}
    path.write_text("1")
    seen.add(record.content_of("x", tmp_path))
    path.write_text("2")
    seen.add(record.content_of("x", tmp_path))
    path.chmod(0o755)
    seen.add(record.content_of("x", tmp_path))
    assert len(seen) == 4


def test_a_scenario_runs_again_when_its_digest_is_another() -> None:
    records = {"ssh": {"digest": "1", "passed": "2026-01-02"}, "old": {"digest": "9"}}
    assert record.to_run({"ssh": "1", "web": "2"}, records) == {"web": "no run of it is recorded"}
    assert record.to_run({"ssh": "2"}, records) == {
        "ssh": "its files changed since it passed on 2026-01-02"
    }


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"ssh": 1}', '["ssh"]'])
def test_a_broken_record_is_none(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "scenarios.json"
    if text is not None:
        path.write_text(text)
    assert record.read_scenarios(path) == {}


def test_files_choose_scenarios_as_a_change_does() -> None:
    carried = {name: frozenset({name, "base"}) for name in ("base", "ssh", "web")}
    names = [
        "ansible/roles/ssh/tasks/main.yml",
        "ansible/roles/base/x",
        "ansible/site.yml",
        "LICENSE",
    ]
    sources = {"ansible/site.yml": ""}
    inputs = selection.scenario_inputs(sources, names, carried)
    for file in names:
        chosen = selection.select([file], sources, names, carried).chosen["roles"]
        assert {name for name, files in inputs.items() if file in files} == set(chosen)
    assert inputs["ssh"] == set(names[:3])
    assert inputs["web"] == set(names[1:3])


# The record in the tree.


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with the roles ssh and web."""
    for name in ("ssh", "web"):
        tasks = tmp_path / f"ansible/roles/{name}/tasks.yml"
        tasks.parent.mkdir(parents=True)
        tasks.write_text("")

    def files() -> list[str]:
        paths = [path for path in tmp_path.rglob("*.yml") if path.is_file()]
        return sorted(str(path.relative_to(tmp_path)) for path in paths)

    carried = {name: frozenset({name}) for name in ("ssh", "web")}
    content_of = record.content_of
    monkeypatch.setattr(worktree, "files", files)
    monkeypatch.setattr(worktree, "sources", lambda _names: {"ansible/site.yml": ""})
    monkeypatch.setattr(worktree, "carried_roles", lambda: carried)
    monkeypatch.setattr(record, "content_of", lambda name: content_of(name, tmp_path))
    return tmp_path


def scenarios(checkout: Path) -> record.Scenarios:
    return record.Scenarios(checkout / "tested")


def test_a_scenario_that_passed_runs_again_once_a_file_of_it_changes(checkout: Path) -> None:
    first = scenarios(checkout)
    assert set(first.to_run()) == {"ssh", "web"}
    first.passed("ssh")
    assert set(scenarios(checkout).to_run()) == {"web"}
    (checkout / "ansible/roles/web/tasks.yml").write_text("changed")
    assert set(scenarios(checkout).to_run()) == {"web"}
    (checkout / "ansible/roles/ssh/tasks.yml").write_text("changed")
    assert "its files changed" in scenarios(checkout).to_run()["ssh"]
    assert set(json.loads((checkout / "tested/scenarios.json").read_text())) == {"ssh"}


def test_the_record_itself_is_no_file_of_a_scenario(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def inputs(_sources: object, names: list[str], _carried: object) -> dict[str, frozenset[str]]:
        seen.extend(names)
        return {}

    monkeypatch.setattr(record, "scenario_inputs", inputs)
    (checkout / "tested").mkdir()
    (checkout / "tested/x.yml").write_text("")
    assert scenarios(checkout).to_run() == {}
    assert seen == ["ansible/roles/ssh/tasks.yml", "ansible/roles/web/tasks.yml"]


def test_a_new_file_of_a_role_is_a_change(checkout: Path) -> None:
    scenarios(checkout).passed("ssh")
    (checkout / "ansible/roles/ssh/new.yml").write_text("")
    assert "ssh" in scenarios(checkout).to_run()


def test_a_scenario_whose_files_changed_while_it_ran_is_not_recorded(checkout: Path) -> None:
    records = scenarios(checkout)
    (checkout / "ansible/roles/ssh/tasks.yml").write_text("changed")
    records.passed("ssh")
    records.passed("web")
    (checkout / "ansible/roles/ssh/tasks.yml").write_text("")
    assert set(scenarios(checkout).to_run()) == {"ssh"}


def test_a_scenario_that_passed_again_leaves_the_record_as_it_is(checkout: Path) -> None:
    scenarios(checkout).passed("ssh")
    path = checkout / "tested/scenarios.json"
    path.write_text(path.read_text().replace('"passed": "', '"passed": "before '))
    before = path.read_text()
    scenarios(checkout).passed("ssh")
    assert path.read_text() == before


def test_every_scenario_of_this_checkout_has_files() -> None:
    carried = worktree.carried_roles()
    names = [name for name in worktree.files() if name.startswith("ansible/")]
    inputs = selection.scenario_inputs(worktree.sources(names), names, carried)
    assert set(inputs) == set(carried)
    assert all("ansible/site.yml" in files for files in inputs.values())


# Sittings.


@pytest.fixture
def sitting(tmp_path: Path) -> Sittings:
    return again(tmp_path)


def again(folder: Path, tree: str = TREE, now: str | None = None) -> Sittings:
    return Sittings(tree, folder, lambda: now or tree)


GOOD = [Outcome("lint", "ruff", passed=2, seconds=3.0)]
BAD = [Outcome("lint", "ruff", passed=1, failures=[Failure("mypy", "x")])]


def test_a_tier_that_passed_is_not_left_in_the_next_sitting(
    sitting: Sittings, tmp_path: Path
) -> None:
    assert sitting.left(["lint", "unit"]) == ["lint", "unit"]
    assert sitting.tier_ended("lint", GOOD, 3.0)
    assert again(tmp_path).left(["lint", "unit"]) == ["unit"]
    assert again(tmp_path).tiers["lint"].figures == Figures(2, 0, 0, 3.0)
    assert again(tmp_path, OTHER).left(["lint"]) == ["lint"]


@pytest.mark.parametrize("outcomes", [BAD, [], [Outcome("lint", "x", skipped=[("x", "no")])]])
def test_a_tier_that_failed_or_ran_nothing_is_left(
    sitting: Sittings, tmp_path: Path, outcomes: list[Outcome]
) -> None:
    assert not sitting.tier_ended("lint", outcomes, 3.0)
    assert again(tmp_path).left(["lint"]) == ["lint"]


def test_a_tier_that_passed_while_files_changed_is_not_noted(tmp_path: Path) -> None:
    again(tmp_path, TREE, now=OTHER).tier_ended("lint", GOOD, 3.0)
    assert again(tmp_path).left(["lint"]) == ["lint"]


def test_the_tier_with_the_fourth_repeated_test_is_left(sitting: Sittings) -> None:
    e2e = [Outcome("e2e", "service", passed=9, repeated=[Failure(name, "") for name in "abc"])]
    assert sitting.tier_ended("e2e", e2e, 1.0)
    assert sitting.tiers["e2e"].repeated == ("e2e: a", "e2e: b", "e2e: c")
    faults = [Outcome("faults", "pytest", passed=9, repeated=[Failure("d", "")])]
    assert not sitting.tier_ended("faults", faults, 1.0)
    assert sitting.left(["e2e", "faults"]) == ["faults"]


def test_of_roles_each_scenario_is_noted_as_it_passes(sitting: Sittings, tmp_path: Path) -> None:
    base = Outcome("roles", "base", passed=1, seconds=60.0)
    sitting.step_ended(base)
    sitting.step_ended(Outcome("roles", "web", failures=[Failure("web", "x")]))
    sitting.step_ended(Outcome("lint", "ruff", passed=1))
    later = again(tmp_path)
    assert (later.steps_of("roles"), later.steps_of("lint")) == (["base"], [])
    assert later.left(["roles"]) == ["roles"]
    web = Outcome("roles", "web", passed=1, seconds=30.0)
    later.step_ended(web)
    assert later.tier_ended("roles", [web], 31.0)
    assert again(tmp_path).tiers["roles"].figures == Figures(2, 0, 0, 90.0)


def test_a_run_that_was_killed_after_its_last_scenario_runs_none_again(
    sitting: Sittings, tmp_path: Path
) -> None:
    sitting.step_ended(Outcome("roles", "base", passed=1, seconds=60.0))
    assert again(tmp_path).tier_ended("roles", [], 0.1)


def test_a_broken_note_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{TREE}.json").write_text('{"tiers": {"lint": {}}, "steps": {}}')
    assert again(tmp_path).left(["lint"]) == ["lint"]


def test_the_record_of_the_whole_has_all_sittings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attestation, "FOLDER", tmp_path / "attestations")
    monkeypatch.setattr(record, "FOLDER", tmp_path / "tested")
    monkeypatch.setattr(attestation, "tree_of", lambda: TREE)
    monkeypatch.setattr(plan, "WHOLE", ("lint", "unit"))
    monkeypatch.delenv(attestation.KEY_VARIABLE, raising=False)
    first_sitting = sittings.Sittings(TREE, tmp_path / "whole", lambda: TREE)
    first_sitting.tier_ended("lint", GOOD, 3.0)
    unit = [Outcome("unit", "pytest", passed=5, repeated=[Failure("x", "E   late")])]
    again(tmp_path / "whole").tier_ended("unit", unit, 4.0)
    said = sittings.record_whole(again(tmp_path / "whole"))
    assert "Commit" in said
    whole = attestation.parse((tmp_path / "tested/whole.json").read_text())
    assert whole.tiers == {"lint": Figures(2, 0, 0, 3.0), "unit": Figures(5, 0, 0, 4.0)}
    assert whole.repeated == ("unit: x: late",)
    assert attestation.path_of(TREE).exists()
    (tmp_path / "tested/whole.json").unlink()
    monkeypatch.setattr(attestation, "tree_of", lambda: OTHER)
    assert "files changed" in sittings.record_whole(again(tmp_path / "whole"))
    assert not (tmp_path / "tested/whole.json").exists()

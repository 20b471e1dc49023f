"""Plans of runs: the gate, the whole, and the tiers that a person names."""

from __future__ import annotations

import pytest

from controller.tests import plan, tiers

SCENARIOS = ["base", "directory", "release", "ssh", "web"]


def test_the_gate_runs_the_scenarios_that_changed() -> None:
    sitting = plan.gate(SCENARIOS, {"web": "its files changed"})
    assert sitting.tiers == ["lint", "unit", "goldens", "integration", "roles", "e2e", "faults"]
    assert sitting.only == {"roles": ["web"]}
    assert sitting.done == {"roles": ["base", "directory", "release", "ssh"]}
    assert sitting.is_gate


def test_a_gate_without_a_changed_scenario_has_no_roles() -> None:
    sitting = plan.gate(SCENARIOS, {})
    assert "roles" not in sitting.tiers
    assert sitting.done == {"roles": SCENARIOS}


def test_without_a_record_all_scenarios_run() -> None:
    sitting = plan.gate(SCENARIOS, dict.fromkeys(SCENARIOS, "no run of it is recorded"))
    assert sitting.only == {"roles": SCENARIOS}
    assert sitting.done == {}


@pytest.mark.parametrize(
    ("changed", "with_release"),
    [
        (["web"], False),
        (["ssh", "web"], False),
        (["base", "ssh", "web"], False),
        (["directory", "ssh", "web"], True),
        ([], False),
    ],
)
def test_the_host_of_release_is_made_where_several_begin_from_it(
    changed: list[str], with_release: bool
) -> None:
    sitting = plan.gate(SCENARIOS, dict.fromkeys(changed, "changed"))
    assert ("release" in sitting.only["roles"]) is with_release
    if with_release:
        assert sitting.why["roles:release"] == "the hosts of 3 other scenarios begin as its host"


def test_a_sitting_runs_what_has_not_passed_on_this_tree() -> None:
    left = ["roles", "rolls"]
    steps = {"roles": ["base", "web"], "bench": ["pull"], "rolls": []}
    sitting = plan.whole(plan.WHOLE, left, steps, SCENARIOS)
    assert sitting.chosen == (("roles", ""), ("rolls", ""))
    assert sitting.done == {"roles": ["base", "web"]}
    assert not sitting.is_gate
    assert plan.whole(["rolls"], left, steps, SCENARIOS).tiers == ["rolls"]
    assert plan.whole(["lint"], left, steps, SCENARIOS).tiers == []


@pytest.mark.parametrize(
    ("passed", "done"),
    [
        (["base", "release"], ["base"]),
        (["base", "release", "web"], ["base", "release", "web"]),
        (["base"], ["base"]),
    ],
)
def test_a_sitting_makes_the_host_again_from_which_several_begin(
    passed: list[str], done: list[str]
) -> None:
    sitting = plan.whole(["roles"], ["roles"], {"roles": passed}, SCENARIOS)
    assert sitting.done == {"roles": done}


def test_the_whole_is_every_tier_that_needs_no_site() -> None:
    assert set(tiers.TIERS) - set(plan.WHOLE) == {"site"}
    assert set(plan.GATE) < set(plan.WHOLE)


def test_a_plan_says_what_runs_and_what_not_and_why() -> None:
    gate = plan.gate(["ssh", "web"], {"web": "its files changed"})
    lines = plan.text(gate, plan.left_out(gate, [])).splitlines()
    words = [line.split(maxsplit=2) for line in lines]
    assert ["runs", "roles:web", "its files changed"] in words
    assert "left out  roles:ssh    passed with the same files" in lines
    assert "left out  rolls        not of this run: ./run-tests --all, ./run-tests rolls" in lines
    assert not any(line.startswith("left out  roles ") for line in lines)
    whole = plan.whole(plan.WHOLE, ["rolls"], {}, SCENARIOS)
    lines = plan.text(whole, plan.left_out(whole, ["lint"])).splitlines()
    assert lines[0].split(maxsplit=2) == ["runs", "rolls", "has not passed on this tree"]
    assert lines[1].split(maxsplit=3) == ["left", "out", "lint", "passed on this tree"]


def test_a_plan_of_named_tiers_and_of_a_change() -> None:
    named = plan.named([("unit", "keys"), ("e2e", "")])
    assert plan.text(named, {}).splitlines() == [
        "runs      unit:keys  named",
        "runs      e2e        named",
    ]
    changed = plan.changed(
        [("lint", ""), ("unit", ""), ("e2e", "")],
        {"lint": ("a.py",), "unit": ("testing/unit/test_a.py",), "e2e": ()},
    )
    assert changed.tiers == ["lint", "unit"]
    assert changed.only["unit"] == ("testing/unit/test_a.py",)

"""testing/runner/hosts.py: the tests of roles, which the gate runs in scenarios only."""

from __future__ import annotations

import re

from bootstrap import ROOT

from testing.runner import worktree


def run_by_scenarios() -> set[str]:
    """Return the test files of roles that a scenario runs on one of its hosts.

    These are the tests of the scenario's role, or those that its inventory names for a host.
    """
    names = set(worktree.scenarios())
    for inventory in (ROOT / "testing/roles/inventory").glob("*.yml"):
        text = inventory.read_text("utf-8")
        for named in re.findall(r"^ +role_tests: \[([\w, ]+)\]", text, re.MULTILINE):
            names |= set(re.split(r", *", named))
    return {f"test_{name}.py" for name in names}


def test_each_test_of_a_role_runs_in_a_scenario() -> None:
    """So the gate needs none on the hosts of the cluster (`tiers.of_gate`)."""
    files = {file.name for file in (ROOT / "testing/roles").glob("test_*.py")}
    assert run_by_scenarios() == files

"""controller/tests/hosts.py: the tests of roles, which the gate runs in scenarios only."""

from __future__ import annotations

from controller.bootstrap import ROOT
from controller.tests import worktree
from controller.tests.scenarios import INVENTORIES, role_tests


def test_each_test_of_a_role_runs_in_a_scenario() -> None:
    """So the gate needs none on the hosts of the cluster (`tiers.of_gate`)."""
    inventories = {
        f"{INVENTORIES}{file.name}": file.read_text("utf-8")
        for file in (ROOT / INVENTORIES).glob("*.yml")
    }
    run = {test for name in worktree.scenarios() for test in role_tests(name, inventories)}
    files = {f"testing/roles/{file.name}" for file in (ROOT / "testing/roles").glob("test_*.py")}
    assert files <= run

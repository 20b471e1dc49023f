"""testing/runner/hosts.py: which tests of roles the gate leaves to their scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import ROOT

from testing.roles import conftest
from testing.runner import hosts

if TYPE_CHECKING:
    import pytest


def test_the_gate_leaves_the_tests_of_roles_to_their_scenarios() -> None:
    proven = hosts.tests_of_scenarios()
    for named in ("base", "base_ca", "directory_replica", "metrics", "proxy_acme"):
        assert f"testing/roles/test_{named}.py" in proven
    files = {f"testing/roles/{file.name}" for file in (ROOT / "testing/roles").glob("test_*.py")}
    assert proven <= files
    # A file that no scenario runs stays with the hosts of the cluster.
    assert files - proven == set()


class Item:
    """A collected test of a file."""

    def __init__(self, name: str) -> None:
        self.path = ROOT / name
        self.markers: list[str] = []

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.markers.append(marker.name)


def test_only_tests_that_a_scenario_runs_are_left_out_of_the_gate() -> None:
    own, other = Item("testing/roles/test_base.py"), Item("testing/site/test_ports.py")
    conftest.pytest_collection_modifyitems([own, other])  # type: ignore[list-item]
    assert (own.markers, other.markers) == (["whole"], [])

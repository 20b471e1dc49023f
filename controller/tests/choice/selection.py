"""The choice of `./run-tests --changed`: from changed files to tiers, tests and roles. Pure.

| changed | runs, as well as the linters of the file |
| --- | --- |
| any file | tests that depend on it (references.py), scenarios that depend on it (scenarios.py) |
| `./deploy`, `site.yml`, shared playbooks, an example inventory | the tier deploys |
| a test, a file that tests share | the tests that depend on it, in any tier |
| a role, an inventory, a playbook, a plug-in, a golden | the goldens of every inventory |
| locks, `pyproject.toml`, the build of the release | unit, integration |

Tests are from `unit` and `integration`, where the table does not say more.

Tests of `deploys`, `e2e`, `faults` and `rolls` run when they changed themselves. For any other
change, but for a change of `./deploy`, they are left out, and the report says so: just bringing the
cluster to a changed checkout takes a minute or two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.tests import goldens
from controller.tests.choice import references
from controller.tests.scenarios import scenario_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Selection", "report", "scenario_inputs", "select"]

EVERY_DEPLOY: Final = (
    "ansible/on_host/",
    "controller/deploy/",
    "ansible/inventories/production-",
    "ansible/playbooks/",
    "ansible/site.yml",
    "ansible.cfg",
    "docker/blank-packages.txt",
)
EVERY_TEST: Final = ("requirements.", "pyproject.toml", "docker/release/")
"""Prefixes of the files that decide which programs and libraries run."""

PROSE: Final = ".md"
"""Files that no test reads just because it reads all files."""

TESTS: Final = {
    "unit": re.compile(r"testing/unit/(?:.+/)?test_\w+\.py"),
    "integration": re.compile(r"testing/integration/(?:.+/)?(?:test_\w+\.py|test-[\w-]+\.t)"),
    "roles": re.compile(r"testing/roles/(?:.+/)?test_\w+\.py"),
    "deploys": re.compile(r"testing/deploys/(?:.+/)?test_\w+\.py"),
    "e2e": re.compile(r"testing/e2e/(?:.+/)?test_\w+\.py"),
    "faults": re.compile(r"testing/faults/(?:.+/)?test_\w+\.py"),
    "rolls": re.compile(r"testing/rolls/(?:.+/)?test_\w+\.py"),
}

LATE: Final = ("deploys", "e2e", "faults", "rolls")
"""Tiers whose tests run when they changed themselves."""


@dataclass(frozen=True)
class Selection:
    """Per tier the test files (for `roles` the roles, for `lint` the files) to run, and why."""

    chosen: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]

    @property
    def tiers(self) -> list[str]:
        """The tiers that have something to run."""
        return [tier for tier, names in self.chosen.items() if names]


def select(
    changed: Collection[str],
    sources: Mapping[str, str],
    names: Collection[str],
    carried: Mapping[str, frozenset[str]],
    graph: Mapping[str, frozenset[str]] | None = None,
) -> Selection:
    """Choose the tests and roles that a change of files needs.

    `sources` has the text of files (`worktree.sources`), `names` every file of the repository;
    `carried` says of each scenario (the name of its role) which roles its inventory carries;
    `graph` is the graph of references, where it is known.
    """
    graph = references.graph(sources, {*names, *changed}) if graph is None else graph
    affected = references.dependents(changed, graph)
    if not all(file.endswith(PROSE) for file in changed):
        affected |= references.dependents([references.ANY], graph)
    every = any(file.startswith(EVERY_TEST) for file in changed)
    inputs = scenario_inputs(sources, {*names, *changed}, carried, graph)
    tests = {
        tier: tuple(
            name
            for name in sorted(names)
            if pattern.fullmatch(name) and (every or name in affected)
        )
        for tier, pattern in TESTS.items()
        if tier in ("unit", "integration")
    }
    own = {name for name in affected if _is_by_testing_alone(name, changed, graph)}
    if any(file == "deploy" or file.startswith(EVERY_DEPLOY) for file in changed):
        own |= {name for name in names if TESTS["deploys"].fullmatch(name)}
    late = {
        tier: tuple(name for name in sorted(own & set(names)) if TESTS[tier].fullmatch(name))
        for tier in LATE
    }
    chosen = {
        "lint": tuple(sorted(changed)),
        "unit": tests["unit"],
        "goldens": goldens.affected(changed),
        "integration": tests["integration"],
        "roles": tuple(sorted(role for role, files in inputs.items() if files & set(changed))),
        **late,
    }
    return Selection(chosen, _left_out(chosen, names, carried))


def _is_by_testing_alone(
    name: str, changed: Collection[str], graph: Mapping[str, frozenset[str]]
) -> bool:
    """Whether a test or a file that tests share changed, rather than the product under test."""
    reached = {name}
    waiting = [name]
    while waiting:
        targets = graph.get(waiting.pop(), frozenset())
        new = {target for target in targets if target.startswith("testing/")} - reached
        reached |= new
        waiting += new
    return bool(reached & set(changed))


def _left_out(
    chosen: Mapping[str, tuple[str, ...]],
    names: Collection[str],
    carried: Mapping[str, frozenset[str]],
) -> dict[str, str]:
    """Return, per tier, the tests that are not run, and the reason."""
    result = {}
    if not any(name.startswith(("ansible/", "docker/")) for name in chosen["lint"]):
        result["lint"] = "ansible-lint and the linters of other kinds of files: none changed"
    if not chosen["goldens"]:
        result["goldens"] = "all of them: nothing under ansible/ changed"
    for tier in ("unit", "integration"):
        all_files = [name for name in names if TESTS[tier].fullmatch(name)]
        rest = len(all_files) - len(chosen[tier])
        if rest:
            result[tier] = f"{rest} of {len(all_files)} files: they use nothing that changed"
    rest = len(carried) - len(chosen["roles"])
    if rest:
        result["roles"] = f"{rest} of {len(carried)} scenarios: of other roles"
    for tier in LATE:
        if not chosen[tier]:
            result[tier] = f"none of its tests changed; before a deploy: ./run-tests {tier}"
    return result


def report(
    selection: Selection,
    changed: Collection[str],
    since: str,
    tiers: Collection[str],
    by_name: Collection[str] = (),
) -> str:
    """Render the tests of these tiers that run and the tests left out, for a person.

    `by_name` has the tiers that run only when they are named: chosen tests of them are mentioned.
    """
    shown = sorted(changed)
    lines = [f"{len(shown)} changed {'file' if len(shown) == 1 else 'files'} ({since}):"]
    lines += [f"  {name}" for name in shown[:FILES_SHOWN]]
    if len(shown) > FILES_SHOWN:
        lines.append(f"  ... and {len(shown) - FILES_SHOWN} more")
    for tier, names in selection.chosen.items():
        if tier not in tiers:
            if names and tier in by_name:
                command = f"./run-tests {tier} --changed"
                lines.append(f"left out  {tier:<12} its tests are not of the gate: {command}")
            continue
        what = {"lint": "files", "goldens": "inventories", "roles": "scenarios"}.get(
            tier, "files of tests"
        )
        if names:
            listed = " ".join(name.rpartition("/")[2] for name in names[:FILES_SHOWN])
            more = f" ... ({len(names)} {what})" if len(names) > FILES_SHOWN else ""
            lines.append(f"runs      {tier:<12} {listed}{more}")
        if tier in selection.left_out:
            lines.append(f"left out  {tier:<12} {selection.left_out[tier]}")
    return "\n".join(lines)


FILES_SHOWN: Final = 12

"""The choice of `./run-tests --changed`: from changed files to tiers, tests and roles. Pure.

| changed | runs, beside the linters of the file |
| --- | --- |
| a module of `hgfleet/`, an extension | tests that depend on it, the role of its part |
| a role, its variables, its scenario | the scenarios of that role and of roles that carry it |
| `site.yml`, the playbook of containers | every scenario |
| `./deploy`, `site.yml`, shared playbooks, an example inventory | the tier deploys |
| a test, a file that tests share | the tests that depend on it, in any tier |
| a role, an inventory, a playbook, a plug-in, a golden | the goldens of every inventory |
| locks, `pyproject.toml`, the build of the release | unit, integration, the role release |
| anything else | tests that name the file or its folder |

Tests are those of `unit` and `integration`, where the table does not say more.

Tests of `deploys`, `e2e`, `faults` and `rolls` run when they changed themselves. For any other
change, but for that of `./deploy`, they are left out, and the report says so: bringing the cluster
to a changed checkout alone takes a minute or two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from testing.runner import goldens, references

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ROLE_OF_PART: Final[dict[str, tuple[str, ...]]] = {
    "core": ("release",),
    "registry": ("mercurial",),
    "policies": ("mercurial",),
    "hg": ("mercurial",),
    "admission": ("mercurial",),
    "storage": ("mercurial",),
    "auth": ("web",),
    "selfservice": ("ssh",),
    "objectstore": ("bundles",),
    "monitoring": ("metrics",),
    "probes": ("monitoring",),
}
"""Of packages without a role of the same name: the role whose host runs them."""

EVERY_SCENARIO: Final = (
    "ansible/site.yml",
    "ansible/playbooks/",
    "ansible/plugins/",
    "ansible.cfg",
    "ansible/inventories/cluster/constructed.yml",
    "ansible/inventories/cluster/group_vars/",
    "ansible/inventories/cluster/registry.yml",
    "docker/containers.yml",
    "docker/packages.txt",
    ".config/molecule/",
    "testing/roles/inventory/",
    "testing/roles/playbooks/",
)
EVERY_DEPLOY: Final = (
    "ansible/deploy/",
    "ansible/inventories/production-",
    "ansible/playbooks/",
    "ansible/site.yml",
    "ansible.cfg",
    "docker/blank-packages.txt",
)
EVERY_TEST: Final = ("requirements.", "pyproject.toml", "docker/release/")
"""Prefixes of the files that decide which programs and libraries run."""

ROLE_FILE: Final = re.compile(
    r"ansible/roles/(?P<role>\w+)/"
    r"|ansible/inventories/cluster/group_vars/(?:all/)?(?P<variables>\w+)\.yml"
    r"|testing/roles/inventory/(?P<scenario>\w+)\.yml"
    r"|testing/roles/test_(?P<test>\w+)\.py"
)
TESTS: Final = {
    "unit": re.compile(r"testing/unit/(?:.+/)?test_\w+\.py"),
    "integration": re.compile(r"testing/integration/(?:.+/)?(?:test_\w+\.py|test-[\w-]+\.t)"),
    "roles": re.compile(r"testing/roles/test_\w+\.py"),
    "deploys": re.compile(r"testing/deploys/test_\w+\.py"),
    "e2e": re.compile(r"testing/e2e/test_\w+\.py"),
    "faults": re.compile(r"testing/faults/test_\w+\.py"),
    "rolls": re.compile(r"testing/rolls/test_\w+\.py"),
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


@dataclass
class _Roles:
    """Scenarios with the roles that each carries, and the scenarios that are wanted."""

    carried: Mapping[str, frozenset[str]]
    wanted: set[str] = field(default_factory=set)

    def add_own(self, names: Iterable[str]) -> None:
        self.wanted |= set(names) & set(self.carried)

    def add_carriers(self, role: str) -> None:
        self.wanted |= {name for name, roles in self.carried.items() if role in roles}


def select(
    changed: Collection[str],
    sources: Mapping[str, str],
    names: Collection[str],
    carried: Mapping[str, frozenset[str]],
) -> Selection:
    """Choose the tests and roles that a change of files needs.

    `sources` has the text of every Python file and story, `names` every file of the repository;
    `carried` says of each scenario (the name of its role) which roles its inventory carries.
    """
    graph = references.graph(sources, {*names, *changed})
    affected = references.dependents(changed, graph)
    roles = _Roles(carried)
    every = False
    for file in sorted(changed):
        every = every or file.startswith(EVERY_TEST)
        _roles_of(file, affected, roles)
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
        "roles": tuple(sorted(roles.wanted)),
        **late,
    }
    return Selection(chosen, _left_out(chosen, names, carried))


def scenario_inputs(
    sources: Mapping[str, str], names: Collection[str], carried: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Return per scenario the files whose change chooses it."""
    graph = references.graph(sources, names)
    found: dict[str, set[str]] = {scenario: set() for scenario in carried}
    for file in names:
        roles = _Roles(carried)
        _roles_of(file, references.dependents([file], graph), roles)
        for scenario in roles.wanted:
            found[scenario].add(file)
    return {scenario: frozenset(files) for scenario, files in found.items()}


def _roles_of(file: str, affected: Collection[str], roles: _Roles) -> None:
    found = ROLE_FILE.match(file)
    named = next((name for name in found.groups() if name), "") if found else ""
    if found and named in roles.carried and (found["role"] or found["variables"]):
        roles.add_carriers(named)
    elif found and _scenario(named) in roles.carried:
        roles.add_own([_scenario(named)])
    elif file.startswith(EVERY_SCENARIO):
        roles.add_own(roles.carried)
    elif file.startswith(EVERY_TEST):
        roles.add_own(["release"])
    elif file.startswith("hgext/"):
        roles.add_own(["mercurial"])
    elif file.startswith("hgfleet/"):
        part = file.split("/")[1]
        roles.add_own(ROLE_OF_PART.get(part, (part,)) if "." not in part else ("release",))
    elif file.startswith("testing/roles/"):
        # A file that tests of roles share.
        for name in affected:
            if (match := ROLE_FILE.match(name)) and match["test"]:
                roles.add_own([_scenario(match["test"])])


def _scenario(tests: str) -> str:
    """Return the scenario of tests, such as `directory` of `directory_replica`."""
    return tests.partition("_")[0]


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
    selection: Selection, changed: Collection[str], since: str, tiers: Collection[str]
) -> str:
    """Render the tests of these tiers that run and those left out, for a person."""
    shown = sorted(changed)
    lines = [f"{len(shown)} changed {'file' if len(shown) == 1 else 'files'} ({since}):"]
    lines += [f"  {name}" for name in shown[:FILES_SHOWN]]
    if len(shown) > FILES_SHOWN:
        lines.append(f"  ... and {len(shown) - FILES_SHOWN} more")
    for tier, names in selection.chosen.items():
        if tier not in tiers:
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

"""The scenarios of roles that a change of a file can make fail. Pure.

A scenario proves that a role works by itself: it depends on the roles that its hosts carry, on the
inputs of every host (`site.yml` and the playbooks that it imports, plug-ins, the variables of the
cluster, images of blank hosts), and on its tests with everything that they use.

The release is on every host, but a program depends on its role in few ways: arguments, files of
settings, units. So a package or an extension belongs to the scenarios of the roles that run it, and
the library beneath all programs to `release`. The tier e2e, which runs in every gate, proves the
programs themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.tests.choice import references

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

RUN_BY: Final[dict[str, tuple[str, ...]]] = {
    "acme": ("acme",),
    "admission": ("mercurial",),
    "auth": ("web",),
    "backup": ("backup",),
    "bundles": ("bundles",),
    "core": ("release",),
    "directory": ("directory", "ssh"),
    "hg": ("mercurial",),
    "integrity": ("mercurial",),
    "logs": ("release",),
    "monitoring": ("metrics",),
    "objectstore": ("backup", "bundles", "monitoring", "steering"),
    "policies": ("mercurial",),
    "probes": ("monitoring",),
    "pushlog": ("mercurial",),
    "registry": ("mercurial",),
    "replication": ("replication",),
    "selfservice": ("ssh",),
    "ssh": ("ssh",),
    "steering": ("steering",),
    "storage": ("mercurial",),
    "web": ("web",),
    "webhooks": ("replication",),
}
"""Per package of `hgfleet` the roles whose programs are in it, or consist of it."""

EVERY: Final = (
    ".config/molecule/",
    "ansible.cfg",
    "ansible/inventories/cluster/constructed.yml",
    "ansible/inventories/cluster/registry.yml",
    "ansible/plugins/",
    "controller/bootstrap.py",
    "docker/containers.yml",
    "controller/cluster/images.py",
    "docker/packages.txt",
    "docker/release/",
    "requirements.",
    "testing/roles/inventory/group_vars",
    "testing/roles/inventory/names.yml",
    "testing/roles/inventory/registry.yml",
    "testing/roles/playbooks/",
)
"""Prefixes of the files on which the hosts of every scenario depend, besides `site.yml`."""

SITE: Final = "ansible/site.yml"
PLAYBOOKS: Final = "ansible/playbooks/"
ROLES: Final = "ansible/roles/"
VARIABLES: Final = "ansible/inventories/cluster/group_vars/"
INVENTORIES: Final = "testing/roles/inventory/"
INSTALLED: Final = ("docs/runbooks/", "pyproject.toml", "hgfleet/")

_NEEDED_ROLE = re.compile(
    r"(?:import_role|include_role):\s+name: (\w+)|^ *- role: (\w+)", re.MULTILINE
)
_VARIABLE = re.compile(r"^(\w+):((?:.|\n(?!\w))*)", re.MULTILINE)
_EXTENSION = re.compile(r"\bhgext[./](\w+)")
_ROLE_TESTS = re.compile(r"^ +role_tests: \[([\w, ]+)\]", re.MULTILINE)
_IMPORTED = re.compile(r"(?:import_playbook|import_tasks|include_tasks|script|cmd): *\"?([\w./-]+)")


def scenario_inputs(
    sources: Mapping[str, str],
    names: Collection[str],
    carried: Mapping[str, frozenset[str]],
    graph: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, frozenset[str]]:
    """Return per scenario the files out of `names` whose change can change its result.

    `sources` has the text of files (`worktree.sources`), `names` every file of the repository, and
    `carried` says of each scenario (the name of its role) which roles its inventory carries
    (`worktree.carried_roles`). A single call answers for all files: it builds the graph of
    references, unless it is given.
    """
    graph = references.graph(sources, names) if graph is None else graph
    rules = _Rules.of(sources, carried)
    result = {
        scenario: references.reached(role_tests(scenario, sources), graph) & set(names)
        for scenario in carried
    }
    for name in names:
        for scenario in rules.scenarios(name) & set(carried):
            result[scenario].add(name)
    return {scenario: frozenset(files) for scenario, files in result.items()}


def role_tests(scenario: str, sources: Mapping[str, str]) -> set[str]:
    """Return the files of tests that a scenario runs: of its role, and of `role_tests`."""
    listed = _ROLE_TESTS.findall(sources.get(f"{INVENTORIES}{scenario}.yml", ""))
    tests = {scenario, *(test.strip() for names in listed for test in names.split(","))}
    return {f"testing/roles/test_{test}.py" for test in tests}


@dataclass(frozen=True)
class _Rules:
    """The scenarios that the place of a file decides."""

    carriers: Mapping[str, frozenset[str]]
    """Per role the scenarios with it."""
    roles: Mapping[str, str]
    """Per role the text of all its files."""
    inventories: Mapping[str, str]
    """Per scenario the text of its inventory."""
    variables: Mapping[str, str]
    playbooks: frozenset[str]
    """`site.yml` and the files that it imports, directly or not."""

    @classmethod
    def of(cls, sources: Mapping[str, str], carried: Mapping[str, frozenset[str]]) -> _Rules:
        roles = _texts_of_roles(sources)
        return cls(
            _carriers(roles, carried),
            roles,
            {scenario: sources.get(f"{INVENTORIES}{scenario}.yml", "") for scenario in carried},
            {file: text for file, text in sources.items() if file.startswith(VARIABLES)},
            _playbooks_of_site(sources),
        )

    def scenarios(self, name: str) -> frozenset[str]:
        """Return the scenarios of a file, among them perhaps roles without a scenario."""
        parts = name.split("/")
        if name.startswith(EVERY) or name in self.playbooks:
            return self._every
        if name.startswith(ROLES):
            return self._of_role(parts)
        if name.startswith(VARIABLES):
            return self._of_variables(name)
        if name.startswith(INVENTORIES):
            return frozenset({parts[-1].removesuffix(".yml")})
        if parts[0] == "hgext":
            extension = parts[1].removesuffix(".py")
            users = (r for r, text in self.roles.items() if extension in _EXTENSION.findall(text))
            return frozenset({"mercurial", *users})
        if parts[0] == "hgfleet" and len(parts) > 2:
            return self._of_package(parts[1])
        return frozenset({"release"} if name.startswith(INSTALLED) else ())

    @property
    def _every(self) -> frozenset[str]:
        return frozenset(self.inventories)

    def _of_role(self, parts: list[str]) -> frozenset[str]:
        role = parts[2]
        if parts[3:] == ["README.md"]:
            return frozenset()
        return frozenset({role}) if parts[3] == "molecule" else self.carriers.get(role, frozenset())

    def _of_package(self, package: str) -> frozenset[str]:
        result: set[str] = set()
        for role in RUN_BY.get(package, (package,)):
            # A role without a scenario is proven by the scenarios that carry it.
            result |= {role} if role in self.inventories else self.carriers.get(role, frozenset())
        return frozenset(result)

    def _of_variables(self, name: str) -> frozenset[str]:
        """Return the scenarios of the role, of roles and inventories that mention a variable."""
        role = name.rpartition("/")[2].removesuffix(".yml")
        variables = {match[1] for match in _VARIABLE.finditer(self.variables.get(name, ""))}
        if role not in self.carriers or not variables:
            return self._every
        while True:
            mentions = re.compile(rf"\b(?:{'|'.join(sorted(variables))})\b").search
            # A variable may be made of others.
            made = {
                match[1]
                for text in self.variables.values()
                for match in _VARIABLE.finditer(text)
                if mentions(match[2])
            }
            if made <= variables:
                break
            variables |= made
        texts = [*self.roles.items(), *self.inventories.items()]
        return self.carriers[role] | {owner for owner, text in texts if mentions(text)}


def _texts_of_roles(sources: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for name, text in sources.items():
        if name.startswith(ROLES) and "/molecule/" not in name and not name.endswith(".md"):
            texts.setdefault(name.split("/")[2], []).append(text)
    return {role: "\n".join(of_role) for role, of_role in texts.items()}


def _carriers(
    roles: Mapping[str, str], carried: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """Return per role the scenarios that carry it, as a role of their hosts or as its need."""
    needed = {
        role: frozenset(name for names in _NEEDED_ROLE.findall(text) for name in names if name)
        for role, text in roles.items()
    }
    result: dict[str, set[str]] = {}
    for scenario, own in carried.items():
        for role in references.reached(own, needed):
            result.setdefault(role, set()).add(scenario)
    return {role: frozenset(scenarios) for role, scenarios in result.items()}


def _playbooks_of_site(sources: Mapping[str, str]) -> frozenset[str]:
    """Return `site.yml` with the playbooks and scripts that it imports, directly or not."""
    graph = {
        name: frozenset(_imported(name, text))
        for name, text in sources.items()
        if name == SITE or name.startswith(PLAYBOOKS)
    }
    return frozenset(references.reached({SITE}, graph))


def _imported(name: str, text: str) -> Iterator[str]:
    for target in _IMPORTED.findall(text):
        folders = name.split("/")[:-1]
        for part in target.split("/"):
            folders = folders[:-1] if part == ".." else [*folders, part]
        yield "/".join(folders)

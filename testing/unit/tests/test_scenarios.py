"""The files on which the scenarios of roles depend."""

from __future__ import annotations

import re

import pytest

from controller.bootstrap import ROOT
from controller.tests import worktree
from controller.tests.scenarios import RUN_BY, role_tests, scenario_inputs

CARRIED = {
    "base": frozenset({"base"}),
    "release": frozenset({"base", "release"}),
    "mercurial": frozenset({"base", "release", "mercurial"}),
    "web": frozenset({"base", "release", "mercurial", "web"}),
    "proxy": frozenset({"base", "release", "mercurial", "web", "proxy"}),
}
INVENTORIES = "testing/roles/inventory/"
VARIABLES = "ansible/inventories/cluster/group_vars/all/"
SOURCES = {
    "ansible/site.yml": "- ansible.builtin.import_playbook: playbooks/internal/preflight.yml\n",
    "ansible/playbooks/internal/preflight.yml": (
        "  import_tasks: tasks/port.yml\n  cmd: ../../on_host/mark.py"
    ),
    "ansible/playbooks/internal/tasks/port.yml": "",
    "ansible/playbooks/promote.yml": "",
    "ansible/on_host/mark.py": "",
    "controller/deploy/roll.py": "",
    "ansible/roles/acme/tasks/main.yml": "",
    "ansible/roles/tls/tasks/main.yml": "",
    "ansible/roles/web/meta/main.yml": "dependencies:\n  - role: tls\n",
    "ansible/roles/web/templates/hgrc.j2": "counts = hgext/counts.py\nsize = {{ store_size }}",
    "ansible/roles/web/README.md": "",
    "ansible/roles/web/molecule/default/molecule.yml": "",
    "ansible/roles/proxy/tasks/main.yml": "import_role:\n    name: acme\n",
    VARIABLES + "site.yml": "site_name: x\n",
    VARIABLES + "mercurial.yml": "mercurial_size:\n  a: 1\n",
    VARIABLES + "proxy.yml": "store_size: 2\nproxy_port: '{{ shared }}'\n",
    VARIABLES + "release.yml": "other: '{{ release_x }}'\nshared: 1\n",
    "docker/packages.txt": "",
    "hgext/counts.py": "",
    "hgext/access.py": "",
    "hgfleet/cli.py": "",
    "hgfleet/core/errors.py": "",
    "hgfleet/core/trace.py": "",
    "hgfleet/acme/run.py": "",
    "hgfleet/web/app.py": "",
    "hgfleet/web/data.json": "",
    "hgfleet/new/app.py": "",
    "docs/runbooks/web.md": "",
    "docs/other.md": "",
    "testing/conftest.py": "from hgfleet.core import trace",
    "testing/roles/test_web.py": "",
    "testing/roles/test_proxy.py": "from testing.roles import http",
    "testing/roles/test_proxy_acme.py": "",
    "testing/roles/http.py": "",
    INVENTORIES + "proxy.yml": " role_tests: [proxy, proxy_acme]\nx: '{{ mercurial_size }}'",
}
EVERY = set(CARRIED)


def scenarios(file: str) -> set[str]:
    inputs = scenario_inputs(SOURCES, SOURCES, CARRIED)
    return {scenario for scenario, files in inputs.items() if file in files}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("ansible/site.yml", EVERY),
        ("docker/packages.txt", EVERY),
        # Playbooks that site.yml imports, and their scripts.
        ("ansible/playbooks/internal/preflight.yml", EVERY),
        ("ansible/playbooks/internal/tasks/port.yml", EVERY),
        ("ansible/on_host/mark.py", EVERY),
        ("ansible/playbooks/promote.yml", set()),
        ("controller/deploy/roll.py", set()),
        # Scenarios that carry the role, or a role that needs it.
        ("ansible/roles/web/templates/hgrc.j2", {"web", "proxy"}),
        ("ansible/roles/tls/tasks/main.yml", {"web", "proxy"}),
        ("ansible/roles/acme/tasks/main.yml", {"proxy"}),
        ("ansible/roles/web/molecule/default/molecule.yml", {"web"}),
        ("ansible/roles/web/README.md", set()),
        # Variables of a role, with the roles, inventories and variables that mention them.
        (VARIABLES + "site.yml", EVERY),
        (VARIABLES + "mercurial.yml", {"mercurial", "web", "proxy"}),
        (VARIABLES + "proxy.yml", {"proxy", "web"}),
        (VARIABLES + "release.yml", EVERY - {"base"}),
        # The release.
        ("hgext/access.py", {"mercurial"}),
        ("hgext/counts.py", {"mercurial", "web"}),
        ("hgfleet/cli.py", {"release"}),
        ("hgfleet/core/errors.py", {"release"}),
        ("hgfleet/acme/run.py", {"proxy"}),
        ("hgfleet/web/app.py", {"web"}),
        ("hgfleet/web/data.json", {"web"}),
        ("docs/runbooks/web.md", {"release"}),
        ("docs/other.md", set()),
        # Tests and the files that they use.
        ("testing/roles/inventory/proxy.yml", {"proxy"}),
        ("testing/roles/test_web.py", {"web"}),
        ("testing/roles/test_proxy_acme.py", {"proxy"}),
        ("testing/roles/http.py", {"proxy"}),
        ("hgfleet/core/trace.py", {"release", "web", "proxy"}),
    ],
)
def test_a_file_is_an_input_of_the_scenarios_that_it_can_make_fail(
    file: str, expected: set[str]
) -> None:
    assert scenarios(file) == expected


def test_a_variable_that_is_made_of_another_belongs_to_the_file_of_both() -> None:
    sources = {**SOURCES, VARIABLES + "web.yml": "made: 1\n"}
    sources[VARIABLES + "base.yml"] = "host_line: '{{ made }}'\n"
    sources["ansible/roles/mercurial/tasks/main.yml"] = "line: '{{ host_line }}'"
    inputs = scenario_inputs(sources, sources, CARRIED)
    names = {scenario for scenario, own in inputs.items() if VARIABLES + "web.yml" in own}
    assert names == {"web", "proxy", "mercurial"}


# This checkout.


def test_every_package_has_a_scenario() -> None:
    packages = {path.parent.name for path in (ROOT / "hgfleet").glob("*/__init__.py")}
    roles = {path.name for path in (ROOT / "ansible/roles").iterdir()}
    assert packages == set(RUN_BY)
    assert {role for run_by in RUN_BY.values() for role in run_by} <= roles


def test_every_program_that_a_role_runs_is_of_a_package_that_names_the_role() -> None:
    """The table against the text of roles: `bin/hgfleet backup`, `hgfleet.web.app`."""
    from hgfleet.cli import PARTS

    missing = []
    for role in (ROOT / "ansible/roles").iterdir():
        text = "\n".join(
            path.read_text() for path in role.rglob("*") if path.suffix in (".j2", ".yml")
        )
        modules = {PARTS[part][0] for part in re.findall(r"bin/hgfleet (\w+)", text)}
        modules |= set(re.findall(r"\bhgfleet\.(?:web|auth|ssh)\.\w+", text))
        for module in modules:
            package = module.split(".")[1]
            if role.name not in RUN_BY[package]:
                missing.append((role.name, module))
    assert missing == []


def test_every_test_of_the_tier_is_run_by_a_scenario() -> None:
    names = worktree.files()
    sources = worktree.sources(names)
    run = {test for role in worktree.scenarios() for test in role_tests(role, sources)}
    there = {name for name in names if re.fullmatch(r"testing/roles/test_\w+\.py", name)}
    assert run == there

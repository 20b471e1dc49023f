"""The tests that `./run-tests --changed` chooses, and those that it leaves out."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import SetupError
from controller.tests import cli, linters, tiers, worktree
from controller.tests.choice import references
from controller.tests.choice.selection import Selection, report, select
from controller.tests.execution import batches

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = {
    "hgfleet/__init__.py": "",
    "hgfleet/cli.py": "PARTS = {'web': 'hgfleet.web.app'}",
    "hgfleet/core/errors.py": "",
    "hgfleet/web/__init__.py": "",
    "hgfleet/web/app.py": "from hgfleet.core import errors\nfrom . import wire",
    "hgfleet/web/wire.py": "import json",
    "hgfleet/ssh/shell.py": "from hgfleet.core.errors import X",
    "hgext/access.py": "from hgfleet.ssh import shell",
    "controller/bootstrap.py": "",
    "controller/cluster/images.py": "import bootstrap",
    "testing/conftest.py": "",
    "testing/unit/test_app.py": "from hgfleet.web import app",
    "testing/unit/test_wire.py": "def test():\n    from hgfleet.web.wire import x",
    "testing/unit/test_shell.py": "from hgfleet.ssh import shell",
    "testing/unit/test_images.py": "from controller.cluster import images",
    "testing/unit/test_roles.py": "ROLES = ROOT / 'ansible/roles'",
    "testing/integration/conftest.py": "from testing.integration.site import Site",
    "testing/integration/site.py": "",
    "testing/integration/test-access.t": "  $ hg --config extensions.a=$TOP/hgext/access.py",
    "testing/integration/test_serve.py": "run([python, '-m', 'hgfleet.web.app'])",
    "testing/deploys/site.py": "",
    "testing/deploys/test_small.py": "from testing.deploys.site import Site",
    "testing/e2e/support.py": "",
    "testing/e2e/abuse/test_abuse_wire.py": "",
    "testing/e2e/test_clone.py": "from testing.e2e.support import x\nfrom hgfleet.web import app",
    "testing/e2e/test_push.py": "from testing.e2e.support import x",
    "testing/roles/ldap.py": "",
    "testing/roles/test_directory.py": "from testing.roles.ldap import x",
    "testing/roles/test_directory_replica.py": "",
    "testing/roles/test_web.py": "",
    "testing/roles/inventory/directory.yml": "    h:\n      role_tests: [directory_replica]\n",
    "ansible/inventories/cluster/group_vars/all/ssh.yml": "ssh_port: 22",
}
NAMES = [
    *SOURCES,
    "ansible/site.yml",
    "ansible/roles/web/templates/nginx.conf.j2",
    "docs/architecture.md",
    "hgfleet/web/static/style.css",
]
GOLDENS = {"production-small.example", "production-large.example", "cluster"}
CARRIED = {
    "base": frozenset({"base"}),
    "release": frozenset({"base", "release"}),
    "directory": frozenset({"base", "release", "directory"}),
    "mercurial": frozenset({"base", "release", "mercurial"}),
    "ssh": frozenset({"base", "release", "mercurial", "directory", "ssh"}),
    "web": frozenset({"base", "release", "mercurial", "directory", "web"}),
    "proxy": frozenset({"base", "release", "mercurial", "web", "proxy"}),
}


def chosen(*changed: str) -> dict[str, set[str]]:
    selection = select(changed, SOURCES, NAMES, CARRIED)
    return {
        tier: {name.rpartition("/")[2] for name in names}
        for tier, names in selection.chosen.items()
        if names and tier != "lint"
    }


# References.


def test_a_module_refers_to_what_it_imports_and_the_packages_around_it() -> None:
    graph = references.graph(SOURCES, NAMES)
    assert graph["testing/unit/test_app.py"] == {
        "hgfleet/__init__.py",
        "hgfleet/web/__init__.py",
        "hgfleet/web/app.py",
        "testing/conftest.py",
    }
    assert {"hgfleet/core/errors.py", "hgfleet/web/wire.py"} <= graph["hgfleet/web/app.py"]


def test_what_only_type_checkers_import_does_not_count() -> None:
    text = "if TYPE_CHECKING:\n    import bootstrap\nelse:\n    import hgfleet.cli\n"
    graph = references.graph({**SOURCES, "hgfleet/x.py": text}, [])
    assert graph["hgfleet/x.py"] == {"hgfleet/__init__.py", "hgfleet/cli.py"}


def test_docstrings_and_the_table_of_subcommands_are_no_references() -> None:
    story = '"""Of hgfleet.ssh.session.shell and controller/bootstrap.py."""\n'
    graph = references.graph({**SOURCES, "testing/unit/test_x.py": story}, [])
    assert graph["testing/unit/test_x.py"] == {"testing/conftest.py"}
    assert graph["hgfleet/cli.py"] == frozenset()


def test_a_file_that_is_no_python_yet_refers_to_nothing() -> None:
    assert references.graph({"hgfleet/x.py": "def"}, []) == {"hgfleet/x.py": frozenset()}


# Selection.


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "hgfleet/web/wire.py",
            {
                "unit": {"test_app.py", "test_wire.py"},
                "integration": {"test_serve.py"},
                "roles": {"web"},
            },
        ),
        (
            "hgfleet/web/static/style.css",
            {
                "unit": {"test_app.py", "test_wire.py"},
                "integration": {"test_serve.py"},
                "roles": {"web"},
            },
        ),
        (
            "hgfleet/core/errors.py",
            {
                "unit": {"test_app.py", "test_shell.py"},
                "integration": {"test-access.t", "test_serve.py"},
                "roles": {"release"},
            },
        ),
        ("hgext/access.py", {"integration": {"test-access.t"}, "roles": {"mercurial"}}),
        (
            "ansible/roles/web/templates/nginx.conf.j2",
            {"unit": {"test_roles.py"}, "goldens": GOLDENS, "roles": {"web", "proxy"}},
        ),
        (
            "ansible/inventories/cluster/group_vars/all/ssh.yml",
            {"goldens": GOLDENS, "roles": {"ssh"}},
        ),
        (
            "ansible/site.yml",
            {"goldens": GOLDENS, "roles": set(CARRIED), "deploys": {"test_small.py"}},
        ),
        ("testing/goldens/ssh.txt", {"goldens": GOLDENS}),
        ("controller/deploy/cli.py", {"deploys": {"test_small.py"}}),
        ("deploy", {"deploys": {"test_small.py"}}),
        ("testing/deploys/site.py", {"deploys": {"test_small.py"}}),
        ("testing/roles/inventory/web.yml", {"roles": {"web"}}),
        ("testing/roles/test_web.py", {"roles": {"web"}}),
        ("testing/roles/test_directory_replica.py", {"roles": {"directory"}}),
        ("testing/roles/ldap.py", {"roles": {"directory"}}),
        ("controller/cluster/images.py", {"unit": {"test_images.py"}, "roles": set(CARRIED)}),
        ("docs/architecture.md", {}),
        ("testing/unit/test_app.py", {"unit": {"test_app.py"}}),
        # pytest loads it for stories too.
        ("testing/integration/site.py", {"integration": {"test_serve.py", "test-access.t"}}),
        ("testing/e2e/test_push.py", {"e2e": {"test_push.py"}}),
        ("testing/e2e/abuse/test_abuse_wire.py", {"e2e": {"test_abuse_wire.py"}}),
        ("testing/e2e/support.py", {"e2e": {"test_push.py", "test_clone.py"}}),
        (
            "pyproject.toml",
            {
                "unit": {f"test_{name}.py" for name in ("app", "wire", "shell", "images", "roles")},
                "integration": {"test_serve.py", "test-access.t"},
                "roles": {"release"},
            },
        ),
    ],
)
def test_a_change_chooses_what_can_tell_of_it(file: str, expected: dict[str, set[str]]) -> None:
    assert chosen(file) == expected


def test_a_removed_module_chooses_what_still_imports_it() -> None:
    sources = {name: text for name, text in SOURCES.items() if name != "hgfleet/web/wire.py"}
    selection = select(["hgfleet/web/wire.py"], sources, sources, CARRIED)
    assert "testing/unit/test_wire.py" in selection.chosen["unit"]


def test_what_is_left_out_is_said_with_its_reason() -> None:
    files = ["hgfleet/web/wire.py"]
    text = report(select(files, SOURCES, NAMES, CARRIED), files, "not on main", list(tiers.TIERS))
    assert "1 changed file (not on main):\n  hgfleet/web/wire.py\n" in text
    assert "runs      roles        web\n" in text
    assert "left out  unit         3 of 5 files: they use nothing that changed" in text
    assert "left out  roles        6 of 7 scenarios: of other roles" in text
    assert "before a deploy: ./run-tests deploys" in text
    assert "before a deploy: ./run-tests e2e" in text
    assert "before a deploy: ./run-tests faults" in text
    assert "left out  lint         ansible-lint" in text
    text = report(select(files, SOURCES, NAMES, CARRIED), files, "not on main", ["unit"])
    assert "roles" not in text


def test_tests_of_the_change_that_are_not_of_the_gate_are_named_with_their_command() -> None:
    files = ["deploy"]
    chosen = select(files, SOURCES, NAMES, CARRIED)
    text = report(chosen, files, "not on main", ["unit"], by_name=tiers.BY_NAME)
    told = "left out  deploys      its tests are not of the gate: ./run-tests deploys --changed"
    assert told in text.splitlines()
    assert "rolls" not in text
    assert "deploys" not in report(chosen, files, "not on main", ["unit"])


def test_of_many_files_the_first_are_shown() -> None:
    files = [f"docs/{n:02}.md" for n in range(30)]
    text = report(Selection({"lint": tuple(files)}, {}), files, "since v1", ["lint"])
    assert "  ... and 18 more" in text
    assert "11.md ... (30 files)" in text


# git.


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(worktree, "ROOT", tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@hgfleet.test"]
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_of_a_branch_all_that_is_not_on_main_counts(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "-b", "topic")
    (checkout / "a").unlink()
    git(checkout, "commit", "-q", "-a", "-m", "second")
    (checkout / "b").write_text("2")
    (checkout / "new").write_text("1")
    commit, since = worktree.base_of_change("")
    assert (commit, since) == (git(checkout, "rev-parse", "main"), "not on main")
    assert worktree.changed_since(commit) == ["a", "b", "new"]
    assert worktree.files() == ["b", "new"]


def test_on_main_what_is_not_committed_counts_else_the_last_commit(checkout: Path) -> None:
    (checkout / "b").write_text("2")
    git(checkout, "commit", "-q", "-a", "-m", "second")
    commit, since = worktree.base_of_change("")
    assert since == "the last commit"
    assert worktree.changed_since(commit) == ["b"]
    (checkout / "a").write_text("2")
    commit, since = worktree.base_of_change("")
    assert since == "not committed, on main"
    assert worktree.changed_since(commit) == ["a"]


def test_an_unknown_revision_is_refused(checkout: Path) -> None:
    assert worktree.base_of_change("main")[1] == "since main"
    with pytest.raises(SetupError, match="no revision 'lint'"):
        worktree.base_of_change("lint")
    (checkout / ".git").rename(checkout / "git")
    with pytest.raises(SetupError, match="needs a git checkout"):
        worktree.base_of_change("")
    assert "a" in worktree.files()


def test_every_scenario_names_its_hosts() -> None:
    hosts = {role: worktree.hosts_of(role) for role in worktree.scenarios()}
    assert hosts["ssh"] == ["role-ssh"]
    assert hosts["directory"] == ["role-directory", "role-directory-replica"]
    assert all(hosts.values()), hosts


def test_roles_that_a_scenario_carries_are_read_from_its_inventory() -> None:
    carried = worktree.carried_roles()
    assert carried["base"] == {"base"}
    assert {"base", "release", "mercurial", "web"} <= carried["web"]
    assert "web" in carried["proxy"]


# The command line.


def test_changed_takes_a_revision_and_no_words() -> None:
    options, _ = cli.parse(["lint", "--changed"])
    assert options.changed == ""
    options, _ = cli.parse(["--changed", "v1"])
    assert options.changed == "v1"
    assert cli.parse(["unit"])[0].changed is None
    with pytest.raises(SystemExit):
        cli.parse(["unit:web", "--changed"])


# Steps of a narrowed run.


def commands(files: list[str]) -> dict[str, list[str]]:
    return {step.name: list(step.command)[1:] for step in linters.steps("", files)}


def test_only_linters_of_the_changed_kinds_of_files_run() -> None:
    always = {"role readmes", "house rules", "prose", "locks", "docs"}
    always |= {"table of ports", "table of states", "alerts"}
    python = commands(["hgfleet/web/app.py", "hgfleet/web/removed.py"])
    assert set(python) - always == {"mypy", "ruff check", "ruff format"}
    assert python["ruff check"] == ["check", "--no-fix", "hgfleet/web/app.py"]
    assert set(commands(["ansible/site.yml"])) - always == {"ansible-lint", "yamllint"}
    assert set(commands([".ci/run"])) - always == {"shellcheck"}
    assert not set(commands(["docs/architecture.md"])) - always
    assert always <= set(commands([]))


def test_a_narrowed_tier_runs_the_chosen_files_alone() -> None:
    (unit,) = tiers.unit("", ["testing/unit/test_cli.py"])
    assert "testing/unit/test_cli.py" in unit.command
    assert "testing/unit" not in unit.command
    (integration,) = tiers.integration("", ["testing/integration/test-access.t"])
    assert "testing/integration" not in integration.command


HOSTS = {
    "HGFLEET_BASE_IMAGE": "blank",
    "HGFLEET_KEPT_IMAGE": "kept",
    "HGFLEET_CLUSTER_NAME": "test-roles",
}


@pytest.fixture
def role_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_role_environment", lambda: HOSTS)
    monkeypatch.setattr(worktree, "carried_roles", lambda: CARRIED)


@pytest.mark.usefixtures("role_tests")
def test_scenarios_that_take_longest_begin_first() -> None:
    steps = tiers.roles("", ["mercurial", "ssh", "base"])
    assert [step.name for step in steps] == ["base", "ssh", "mercurial"]
    steps = tiers.roles("s", ["release", "ssh"])
    assert [step.name for step in steps] == ["release", "ssh"]
    steps = tiers.roles("rel", ["release", "ssh", "base"])
    assert [step.name for step in steps] == ["release"]
    assert tiers.roles("nothing", ["base"]) == []


@pytest.mark.usefixtures("role_tests")
def test_scenarios_wait_for_the_host_that_they_begin_from() -> None:
    steps = tiers.roles("", ["ssh", "base", "release"])
    assert [(step.name, step.env["HGFLEET_HOST_IMAGE"]) for step in steps] == [
        ("release", "blank"),
        ("base", "blank"),
        ("ssh", "kept"),
    ]
    assert batches(steps) == [[0], [1, 2]]


@pytest.mark.usefixtures("role_tests")
def test_hosts_of_a_scenario_are_removed() -> None:
    (step,) = tiers.roles("", ["ssh"])
    assert step.cleanup == ["docker", "rm", "--force", "--volumes", "test-roles-role-ssh"]

"""The files to which files of this repository refer, as `--changed` follows them."""

from __future__ import annotations

import pytest

from controller.tests.choice import references
from controller.tests.choice.references import ANY
from controller.tests.choice.selection import select

FILES = {
    "ansible.cfg": "",
    "deploy": "#!/usr/bin/env python3\nentry.run('deploy', 'controller.deploy.cli')\n",
    "controller/deploy/cli.py": "BOOKS = ROOT / 'ansible/playbooks'\n",
    "controller/deploy/survey.py": "x = run(['-m', 'hgfleet', 'acme'])\n",
    "ansible/inventories/small/group_vars/all/web.yml": "",
    "ansible/inventories/small/hosts.yml": "",
    "ansible/plugins/filter/rotation.py": "from ansible.errors import AnsibleFilterError\n",
    "ansible/playbooks/roll/ready.yml": "  cmd: ../../on_host/look.py 3\n  # testing/unit/x.py\n",
    "ansible/on_host/look.py": "",
    "ansible/roles/web/tasks/main.yml": "    src: nginx.conf.j2\n",
    "ansible/roles/web/tasks/absent.yml": "  import_role:\n    name: tls\n",
    "ansible/roles/web/templates/nginx.conf.j2": "",
    "ansible/roles/web/templates/other.j2": "",
    "ansible/roles/web/defaults/main.yml": "",
    "ansible/roles/tls/tasks/main.yml": "",
    "controller/bootstrap.py": "ROOT = Path(__file__).resolve().parent.parent\n",
    "hgext/access.py": "",
    "hgext/quota.py": "",
    "hgfleet/__init__.py": "",
    "hgfleet/__main__.py": "",
    "hgfleet/cli.py": "PARTS = {'acme': ('hgfleet.acme.cli', 'renew'), 'web': ('hgfleet.web', '')}",
    "hgfleet/acme/cli.py": "words = [python, '-m', 'hgfleet.acme.worker', '/etc/hgfleet/acme']",
    "hgfleet/acme/worker.py": "",
    "hgfleet/web/__init__.py": "",
    "hgfleet/web/http/pages.py": "",
    "testing/conftest.py": "",
    "testing/support/tfiles.py": "",
    "testing/integration/conftest.py": "",
    "testing/integration/policies.sh": "policies = $TOP/hgext/access.py\n",
    "testing/integration/client.py": "",
    "testing/integration/site.py": "TOP = Path(__file__).parents[2]\nHGEXT = TOP / 'hgext'\n",
    "controller/tests/worktree.py": "def files():\n    pass\n",
    "controller/checks/imports.py": "PLACE = 'hgext'\ndef problems(top):\n    pass\n",
    "testing/unit/data/one.json": "",
    "testing/unit/killed.py": "",
    "testing/unit/test_other.py": "",
}
TEST = "testing/unit/test_x.py"
TOP = "from controller.bootstrap import ROOT\n"
CHECK = "from controller.checks import imports\n"
ONE = "testing/unit/data/one.json"
AROUND = {"testing/conftest.py"}


def of_test(text: str) -> set[str]:
    graph = references.graph({**FILES, TEST: text}, [])
    return set(graph[TEST]) - AROUND


SITE = "testing/integration/site.py"
COMMAND = {"hgfleet/__main__.py", "hgfleet/cli.py", "hgfleet/__init__.py"}
ACME = {*COMMAND, "hgfleet/acme/cli.py"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Places of its own.
        ("x = (Path(__file__).parent / 'data' / name).read_text()", {"testing/unit/data/one.json"}),
        ("x = Path(__file__).with_name('killed.py')", {"testing/unit/killed.py"}),
        ("x = read(Path(__file__).parents[2] / 'hgext')", {"hgext/access.py", "hgext/quota.py"}),
        (
            "for n in ('quota',):\n x((Path(__file__).parents[2] / f'hgext/{n}.py'))",
            {"hgext/quota.py"},
        ),
        # Places that another file has a name for.
        (
            "from testing.integration.site import HGEXT\nx(HGEXT / 'quota.py')",
            {SITE, "hgext/quota.py"},
        ),
        (
            "from testing.integration import site\nx = f'[x]\\na = {site.HGEXT}/access.py\\n'",
            {SITE, "hgext/access.py"},
        ),
        (
            "from testing.integration.site import HGEXT as E\nx = f'{n} = {E}/{n}.py'",
            {SITE, "hgext/access.py", "hgext/quota.py"},
        ),
        ("from testing.integration.site import TOP\nx(cwd=TOP)", {SITE}),
        (
            TOP + "@m.parametrize('n', ['deploy'])\ndef t(n):\n x(ROOT / n)",
            {"controller/bootstrap.py", "deploy"},
        ),
        (
            TOP + "x(ROOT / 'ansible' / 'roles' / r / 'defaults/main.yml')",
            {"controller/bootstrap.py", "ansible/roles/web/defaults/main.yml"},
        ),
        # Names of lists, also of another file.
        (
            (
                TOP + "A = ('deploy',)\nB = [*A, 'x']\n"
                "@m.parametrize('n', B)\ndef t(n):\n x(ROOT / n)"
            ),
            {"controller/bootstrap.py", "deploy"},
        ),
        (
            (TOP + CHECK + "x(ROOT / imports.PLACE / f'{n}.py')"),
            {
                "controller/bootstrap.py",
                "controller/checks/imports.py",
                "hgext/access.py",
                "hgext/quota.py",
            },
        ),
        (
            (TOP + "from controller.checks.imports import PLACE\nx(ROOT / PLACE / 'quota.py')"),
            {"controller/bootstrap.py", "controller/checks/imports.py", "hgext/quota.py"},
        ),
        # A name that is made of itself.
        ("A = [*A]\nfor n in A:\n x(Path(__file__).parent / 'data' / n)", {ONE}),
        # Places that the text does not say.
        (
            TOP + "def t(n):\n x(ROOT / n)",
            {"controller/bootstrap.py", ANY},
        ),
        (
            TOP + CHECK + "imports.problems(ROOT)",
            {"controller/bootstrap.py", "controller/checks/imports.py", ANY},
        ),
        (
            "from controller.tests.worktree import files\nx(files())",
            {"controller/tests/worktree.py", ANY},
        ),
        # The path of the top is no file below it.
        (
            "from controller.bootstrap import ROOT, run\nrun(str(ROOT))\nrun(cwd=ROOT)",
            {"controller/bootstrap.py"},
        ),
        # Ansible reads its settings and loads its plug-ins.
        (
            "from ansible.template import Templar",
            {"ansible.cfg", "ansible/plugins/filter/rotation.py"},
        ),
        ("run(['ansible-inventory', x])", {"ansible.cfg"}),
        # Ansible reads the variables next to the hosts.
        (
            "x = 'ansible/inventories/small/hosts.yml'",
            {"ansible/inventories/small/hosts.yml"},
        ),
        # The names of files are not their content.
        ("x = {p.stem for p in (Path(__file__).parents[2] / 'hgext').iterdir()}", set()),
        # Text of a program.
        (
            "x = 'from hgfleet.web import a as b; from hgfleet.web.http import pages as shown'",
            {"hgfleet/__init__.py", "hgfleet/web/__init__.py", "hgfleet/web/http/pages.py"},
        ),
        (
            "x = 'from hgfleet.web.http import pages'",
            {"hgfleet/__init__.py", "hgfleet/web/__init__.py", "hgfleet/web/http/pages.py"},
        ),
        ("x = [python, '-m', 'hgfleet', 'acme', 'renew']", ACME),
        ("x = 'python -m hgfleet acme renew'", ACME),
        ("from hgfleet import cli\ncli.main(['acme', 'renew'])", ACME),
        ("x = {'hgfleet': 'acme'}", set()),
        ("x = '/etc/hgfleet/web'", set()),
    ],
)
def test_a_test_refers_to_the_files_that_it_names(text: str, expected: set[str]) -> None:
    assert of_test(text) == expected


def refers(name: str) -> set[str]:
    return set(references.graph(FILES, [])[name])


def test_a_story_refers_to_scripts_to_its_plugin_and_to_what_pytest_loads() -> None:
    story = "testing/integration/test-x.t"
    text = "  $ . $TESTDIR/policies.sh\n  $ python $TESTDIR/client.py\n  $ ls $TOP/hgext/quota.py\n"
    graph = references.graph({**FILES, story: text}, [])
    assert graph[story] == {
        "hgext/quota.py",
        "testing/conftest.py",
        "testing/integration/client.py",
        "testing/integration/conftest.py",
        "testing/integration/policies.sh",
        "testing/support/tfiles.py",
    }
    assert story in references.dependents(["hgext/access.py"], graph)


def test_modules_that_a_program_starts_are_references_and_paths_of_hosts_are_not() -> None:
    assert refers("hgfleet/acme/cli.py") == {"hgfleet/acme/worker.py"}


def test_a_role_refers_to_its_templates_its_variables_and_the_roles_that_it_imports() -> None:
    variables = "ansible/roles/web/defaults/main.yml"
    assert refers("ansible/roles/web/tasks/main.yml") == {
        "ansible/roles/web/templates/nginx.conf.j2",
        variables,
    }
    assert refers("ansible/roles/web/tasks/absent.yml") == {
        "ansible/roles/tls/tasks/main.yml",
        variables,
    }


def test_a_playbook_refers_to_the_scripts_that_it_runs_and_to_no_test() -> None:
    assert refers("ansible/playbooks/roll/ready.yml") == {"ansible/on_host/look.py"}


def test_a_program_of_the_controller_refers_to_what_it_starts_and_its_modules_do_not() -> None:
    assert {"controller/deploy/cli.py", "ansible/roles/web/tasks/main.yml"} <= refers("deploy")
    assert refers("controller/deploy/cli.py") == set()
    # A test of the program meets the commands that its modules run; a test of a module does not.
    assert refers("deploy") >= ACME
    assert refers("controller/deploy/survey.py") == set()


def test_the_hosts_of_an_inventory_refer_to_its_variables() -> None:
    variables = "ansible/inventories/small/group_vars/all/web.yml"
    assert refers("ansible/inventories/small/hosts.yml") == {variables}


def test_a_plugin_refers_to_the_settings_of_ansible_and_to_no_other_plugin() -> None:
    assert refers("ansible/plugins/filter/rotation.py") == {"ansible.cfg"}


def test_a_test_that_may_read_any_file_is_chosen_but_for_prose() -> None:
    sources = {**FILES, TEST: TOP + "def t(n):\n x(ROOT / n)"}
    for changed, expected in (("hgext/new.py", (TEST,)), ("docs/x.md", ()), ("x.json", (TEST,))):
        assert select([changed], sources, set(sources), {}).chosen["unit"] == expected

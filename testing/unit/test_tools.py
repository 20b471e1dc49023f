"""The checks of the tier `lint` find what they are for: each is shown something bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.tools import house_rules, imports, lengths, locks, role_readme, tfiles

ROOT = Path(__file__).resolve().parents[2]


# house rules


@pytest.mark.parametrize(
    "line",
    [
        "when: docker_host is defined",
        "when: not is_testing",
        "when: ansible_facts['virtualization_type'] != 'container'",
        "when: ansible_facts.virtualization_role == 'guest'",
        "when: ansible_connection != 'community.docker.docker'",
        "when: lookup('env', 'MOLECULE_PROJECT_DIRECTORY')",
        "when: [a, 'test_mode | bool']",
        "when: in_test",
        "failed_when: inventory_name == 'vagrant'",
        "until: testing or x.rc == 0",
    ],
)
def test_a_condition_on_the_place_is_found(line: str) -> None:
    nested = f"- name: X\n  block:\n    - name: Y\n      ansible.builtin.debug:\n      {line}\n"
    for text in (f"- name: X\n  {line}\n", nested):
        (problem,) = house_rules.tasks_problems(text)
        assert "is a variable of the inventory" in problem[1]
        assert problem[0] == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "- when: x is match('y')\n",
        "- when: contest == latest_version\n",
        "- name: Install the docker client\n  ansible.builtin.apt: {name: docker.io}\n",
        "- when: protested\n",
        "- when: !vault x\n",
        "",
        "---\n",
    ],
)
def test_other_conditions_are_fine(text: str) -> None:
    assert not list(house_rules.tasks_problems(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- ignore_errors: true\n", "ignore_errors hides"),
        ("- name: x # noqa: command-instead-of-module\n", "switches a linter off"),
        ("# yamllint disable-line\n- name: x\n", "switches a linter off"),
    ],
)
def test_looking_away_is_found(text: str, words: str) -> None:
    (problem,) = house_rules.tasks_problems(text)
    assert words in problem[1]


@pytest.mark.parametrize(
    "text",
    [
        "a\n{% if cluster_docker %}\nb\n{% endif %}\n",
        "a\n{%- elif is_testing -%}\n",
        "a\n{{ 'x' if ansible_virtualization_type == 'docker' else 'y' }}\n",
        "a\nConditionVirtualization=!container\n",
    ],
)
def test_a_template_that_asks_for_the_place_is_found(text: str) -> None:
    assert [line for line, _ in house_rules.template_problems(text)] == [2]


def test_an_ordinary_template_is_fine() -> None:
    text = (
        "# docker is mentioned\n{% if profile == 'strict' %}\nA={{ x if y else z }}\n{% endif %}\n"
    )
    assert not list(house_rules.template_problems(text))


def test_a_repository_without_roles_is_no_pass(tmp_path: Path) -> None:
    assert "nothing was checked" in house_rules.check(tmp_path)[-1]


def test_the_command_names_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "ansible/roles/ssh/tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text("---\n- name: X\n  when: docker\n")
    assert house_rules.main([str(tmp_path)]) == 1
    assert f"{tasks}/main.yml:3: when asks about 'docker'" in capsys.readouterr().err
    (tasks / "main.yml").write_text("---\n- name: X\n  when: ssh_port\n")
    assert house_rules.main([str(tmp_path)]) == 0


# imports


def package(top: Path, **modules: str) -> Path:
    """Write modules, named by their path with __ for each slash."""
    for name, text in modules.items():
        path = top / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    (top / "hgfleet/__init__.py").touch()
    return top


def test_this_repository_imports_in_one_direction() -> None:
    assert not imports.problems(ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "import hgfleet.registry.model",
        "from hgfleet.registry import model",
        "from hgfleet.registry.model import Registry",
        "from hgfleet import registry",
        "def f():\n    from hgfleet.registry.model import Registry",
        "if TYPE_CHECKING:\n    from hgfleet.registry.model import Registry",
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, text: str) -> None:
    top = package(tmp_path, hgfleet__policies__base=text, hgfleet__registry__model="")
    (problem,) = imports.problems(top)
    line = text.count("\n") + 1
    assert problem.startswith(
        f"{top}/hgfleet/policies/base.py:{line}: policies imports hgfleet.reg"
    )
    assert problem.endswith("it may import core, policies")


def test_imports_in_the_direction_are_fine(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__core__text="import os\nfrom typing import Final\nimport hgfleet_other.x",
        hgfleet__policies__base="from hgfleet.core import text",
        hgfleet__registry__model="import hgfleet.core.text\nimport hgfleet.policies.base",
        hgfleet__steering__cli="import hgfleet.core.text\nimport hgfleet.registry.model",
        hgfleet__cli="import hgfleet\nfrom hgfleet.steering.cli import x",
        hgext__access="from hgfleet.registry import model",
    )
    assert not imports.problems(top)


def test_a_part_may_not_import_another_beside_it(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__web__app="from hgfleet.ssh import shell",
        hgfleet__ssh__shell="",
        hgfleet__bundles__plan="from hgfleet.steering import probe",
        hgfleet__steering__probe="",
        hgfleet__storage__plan="from hgfleet import cli",
        hgfleet__cli="",
        hgext__access="from hgfleet import cli",
    )
    found = imports.problems(top)
    assert [line.split(": ")[1].partition(";")[0] for line in found] == [
        "bundles imports hgfleet.steering.probe",
        "storage imports hgfleet.cli",
        "web imports hgfleet.ssh.shell",
        "an extension imports hgfleet.cli",
    ]


def test_circles_within_a_package_are_found(tmp_path: Path) -> None:
    top = package(
        tmp_path,
        hgfleet__core__a="from hgfleet.core import b",
        hgfleet__core__b="from hgfleet.core.c import x",
        hgfleet__core__c="def f():\n    import hgfleet.core.a",
        hgfleet__core__d="from hgfleet.core import a",
    )
    (problem,) = imports.problems(top)
    assert problem.endswith(
        "a circle of imports: hgfleet.core.a -> hgfleet.core.b -> hgfleet.core.c -> hgfleet.core.a"
    )


def test_a_loose_module_and_an_unknown_package_are_found(tmp_path: Path) -> None:
    found = imports.problems(package(tmp_path, hgfleet__keys="", hgfleet__other__x=""))
    assert any("keys.py:1: a module beside the packages" in line for line in found)
    assert any("the package other has no place" in line for line in found)


# lengths


def test_a_long_module_and_a_long_function_are_found() -> None:
    body = "    pass\n" * lengths.FUNCTION
    assert list(lengths.too_long(f"class C:\n  def f(self):\n{body}")) == [
        (2, "got 61 lines in f, expected at most 60")
    ]
    assert not list(lengths.too_long(f"def f():\n{body[9:]}"))
    ((line, text),) = lengths.too_long("x = 1\n" * (lengths.MODULE + 1))
    assert line == 1
    assert text.startswith("got a module of 401 lines, expected at most 400")
    assert not list(lengths.too_long("x = 1\n" * lengths.MODULE))


def test_every_folder_with_python_code_is_measured(tmp_path: Path) -> None:
    for folder in lengths.FOLDERS:
        path = tmp_path / folder / "below/x.py"
        path.parent.mkdir(parents=True)
        path.write_text("\n" * 500)
    assert len(lengths.problems(tmp_path)) == len(lengths.FOLDERS)


# locks

H = "--hash=sha256:" + "0" * 64


def lock(
    top: Path, wanted: str, controller: str, release: str, dependencies: str = '"a==1"'
) -> list[str]:
    (top / "docker/release").mkdir(parents=True, exist_ok=True)
    (top / "requirements.in").write_text(wanted)
    (top / "requirements.txt").write_text(controller)
    (top / "pyproject.toml").write_text(f"[project]\ndependencies = [{dependencies}]\n")
    (top / "docker/release/requirements.txt").write_text(release)
    return locks.check(top)


def test_locks_that_fit(tmp_path: Path) -> None:
    text = (
        f"a==1 \\\n    {H} \\\n    {H}\n    # via x\nb-c==2.0 ; python_version < '4' \\\n    {H}\n"
    )
    assert lock(tmp_path, "# x\na>=1,<2\nB_c # y\n", text, f"a==1 \\\n    {H}\n") == []


@pytest.mark.parametrize(
    ("wanted", "controller", "release", "expected"),
    [
        ("a\nb\n", f"a==1 {H}\n", f"a==1 {H}\n", "requirements.txt: b is required and not locked"),
        ("a<1\n", f"a==1 {H}\n", f"a==1 {H}\n", "a<1 is required, 1 is locked"),
        ("a\n", "a==1\n", f"a==1 {H}\n", "a has no hash"),
        ("a\n", f"a>=1 {H}\n", f"a==1 {H}\n", "a is not locked to one version"),
        ("a\n", f"a==1.* {H}\n", f"a==1 {H}\n", "a is not locked to one version"),
        ("a\n", f"--index-url https://x.test\na==1 {H}\n", f"a==1 {H}\n", "is an option"),
        ("a\n", f"a==1 {H}\n", f"a==2 {H}\n", "a==1 is required, 2 is locked"),
        (
            "a\nc\n",
            f"a==1 {H}\nc==1 {H}\n",
            f"a==1 {H}\nc==2 {H}\n",
            "lock the same version in both",
        ),
        ("", f"a==1 {H}\n", f"a==1 {H}\n", "nothing is required"),
    ],
)
def test_locks_that_do_not_fit(
    tmp_path: Path, wanted: str, controller: str, release: str, expected: str
) -> None:
    assert any(expected in line for line in lock(tmp_path, wanted, controller, release))


# READMEs of roles


def role(top: Path, specs: str, defaults: str = "---\n") -> Path:
    for name in ("meta", "defaults", "tasks"):
        (top / "ssh" / name).mkdir(parents=True, exist_ok=True)
    (top / "ssh/meta/argument_specs.yml").write_text("argument_specs:\n  main:\n" + specs)
    (top / "ssh/defaults/main.yml").write_text(defaults)
    return top / "ssh"


SPECS = """\
    short_description: Pushing over SSH
    description: [One., Uses C(sshd) and O(ssh_port).]
    options:
      ssh_port: {type: int, description: The port}
      ssh_secret: {type: str, required: true, description: "A | B"}
      ssh_people:
        type: list
        elements: dict
        description: Who.
        options:
          name: {required: true, description: A name}
          kind: {choices: [a, b], default: a, description: A kind.}
"""


def test_a_readme_has_every_variable_with_type_default_and_meaning(tmp_path: Path) -> None:
    text = role_readme.render(role(tmp_path, SPECS, "ssh_port: 22\nssh_people: []\n"))
    assert "# ssh: Pushing over SSH\n\nOne.\n\nUses `sshd` and `ssh_port`.\n" in text
    assert "| `ssh_port` | int | `22` | The port |" in text
    assert "| `ssh_secret` | str | **required** | A \\| B |" in text
    assert "| `ssh_people[].name` | str | **required** | A name |" in text
    assert "| `ssh_people[].kind` | str | `a` | A kind. One of `a`, `b`. |" in text


def test_a_long_default_is_shown_below_the_table(tmp_path: Path) -> None:
    specs = "    options: {ssh_x: {type: list, description: X}}\n"
    text = role_readme.render(role(tmp_path, specs, f"ssh_x: [{'a' * 40}, {'b' * 40}]\n"))
    assert "| `ssh_x` | list | see below | X |" in text
    assert f"```yaml\nssh_x:\n- {'a' * 40}\n- {'b' * 40}\n```" in text


@pytest.mark.parametrize(
    ("specs", "defaults", "expected"),
    [
        ("    options: {ssh_x: {description: X}}\n", "", "neither required nor in defaults"),
        ("    options: {}\n", "ssh_x: 1\n", "ssh_x is in defaults/main.yml and not in meta"),
        ("    options: {ssh_x: {}}\n", "ssh_x: 1\n", "ssh_x has no description"),
        (
            "    options: {ssh_x: {required: true, description: X}}\n",
            "ssh_x: 1\n",
            "ssh_x is required and has a default",
        ),
    ],
)
def test_specs_and_defaults_must_fit(
    tmp_path: Path, specs: str, defaults: str, expected: str
) -> None:
    with pytest.raises(role_readme.SpecError, match=expected):
        role_readme.render(role(tmp_path, specs, defaults))


def test_check_finds_what_is_stale_and_writing_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = role(tmp_path, "    options: {ssh_x: {description: X}}\n", "ssh_x: 1\n")
    assert role_readme.main(["--check"], tmp_path) == 1
    assert "role_readme ssh writes it" in capsys.readouterr().err
    assert not (where / "README.md").exists()
    assert role_readme.main([], tmp_path) == 0
    assert role_readme.main(["--check"], tmp_path) == 0
    (where / "defaults/main.yml").write_text("ssh_x: 2\n")
    assert role_readme.main(["--check"], tmp_path) == 1
    assert role_readme.main(["ssh"], tmp_path) == 0
    assert role_readme.main(["--check", "ssh"], tmp_path) == 0


def test_an_unknown_role_is_a_usage_error(tmp_path: Path) -> None:
    role(tmp_path, "    options: {}\n")
    with pytest.raises(SystemExit):
        role_readme.main(["shh"], tmp_path)


# .t files


def run_t(tmp_path: Path, text: str) -> None:
    file = tmp_path / "story.t"
    file.write_text(text)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tfiles.run(file, scratch)


@pytest.mark.parametrize(
    "text",
    [
        "A sentence.\n\n  $ echo hello\n  hello\n\nAnother.\n\n  $ true\n",
        "  $ false\n  [1]\n",
        "  $ cat <<EOF\n  > a\n  >   b\n  > EOF\n  a\n    b\n",
        "  $ echo abc123\n  abc* (glob)\n  $ echo 'a*b'\n  a\\*b (glob)\n",
        "  $ echo 42\n  \\d+ (re)\n",
        "  $ printf 'a\\tb\\n'\n  a\\tb (esc)\n",
        "  $ printf x\n  x (no-eol)\n",
        "  $ echo >&2 trouble\n  trouble\n",
        "  $ x=1\n  $ cd /\n  $ echo $x $PWD\n  1 /\n",
        "  $ echo one; echo two; echo three\n  one\n  t* (glob)\n  three\n",
        "  $ cat\n  $ echo stdin is empty\n  stdin is empty\n",
        "  $ hg init r; hg -R r log; test -d $TESTTMP/r; ls -A $TESTTMP\n  r\n",
    ],
)
def test_a_true_story_passes(tmp_path: Path, text: str) -> None:
    run_t(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  $ echo hello\n  goodbye\n", "-  goodbye\n+  hello"),
        ("  $ echo hello\n", "+  hello"),
        ("  $ true\n  something\n", "-  something"),
        ("  $ false\n", "+  [1]"),
        ("  $ true\n  [1]\n", "-  [1]"),
        ("  $ echo hello\n  bye* (glob)\n", "-  bye* (glob)\n+  hello"),
        ("  $ echo abc\n  a.b (glob)\n", "+  abc"),
        ("  $ exit 7\n\n  $ echo never\n  never\n", "+  [the shell ended here with 7]"),
        ("Only prose.\n", "nothing was tested"),
        ("", "nothing was tested"),
    ],
)
def test_a_wrong_story_fails_with_the_difference(tmp_path: Path, text: str, shown: str) -> None:
    with pytest.raises(tfiles.MismatchError) as caught:
        run_t(tmp_path, text)
    assert shown in str(caught.value)


def test_lines_that_match_are_no_part_of_the_difference(tmp_path: Path) -> None:
    with pytest.raises(tfiles.MismatchError) as caught:
        run_t(tmp_path, "  $ echo 1; echo x; echo 3\n  \\d (re)\n  y\n  \\d (re)\n")
    changed = [line for line in str(caught.value).splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-  y", "+  x"]


def test_output_without_a_command_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 3: output without a command"):
        run_t(tmp_path, "Prose.\n\n  lost\n")


def test_exit_80_skips(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="no inotify here"):
        run_t(tmp_path, "  $ echo no inotify here; exit 80\n")


def test_the_person_who_runs_it_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGUSER", "somebody")
    monkeypatch.setenv("EDITOR", "emacs")
    run_t(tmp_path, '  $ echo "$HGUSER$EDITOR$HGFLEET_USER."; hg config ui.username\n  .\n  test\n')


def test_the_lint_configurations_skip_nothing() -> None:
    for name in (".ansible-lint", ".yamllint"):
        text = (ROOT / name).read_text()
        assert "skip_list" not in text
        assert "warn_list" not in text
    assert "profile: production" in (ROOT / ".ansible-lint").read_text()

"""The house rules find conditions on the place, and linters that are switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.checks import house_rules

ROOT = Path(__file__).resolve().parents[3]


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
        "- name: X\n  register: __x_found\n",
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
        ("- name: X\n  register: base_found\n", "needs a name with __"),
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


def test_the_lint_configurations_skip_nothing() -> None:
    for name in (".ansible-lint", ".yamllint"):
        text = (ROOT / name).read_text()
        assert "skip_list" not in text
        assert "warn_list" not in text
    assert "profile: production" in (ROOT / ".ansible-lint").read_text()

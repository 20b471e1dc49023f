"""The rule that programs for hosts import nothing of ours, and that each is sent by a playbook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import ROOT
from controller.checks import host_programs, house_rules

if TYPE_CHECKING:
    from pathlib import Path

LOOK = "import json\nfrom pathlib import Path\n"
PLAY = """\
- hosts: all
  tasks:
    - block:
        - name: X
          ansible.builtin.script:
            cmd: "../on_host/look.py {{ seconds }}"
            executable: /usr/bin/python3
"""
TASK = "- name: X\n  ansible.builtin.script: switch.py a\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in {
        "ansible/on_host/look.py": LOOK,
        "ansible/playbooks/check.yml": PLAY,
        "ansible/roles/release/files/switch.py": LOOK,
        "ansible/roles/release/tasks/main.yml": TASK,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert host_programs.problems(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    "program", ["ansible/on_host/look.py", "ansible/roles/release/files/switch.py"]
)
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from hgfleet.core import names", "hgfleet.core"),
        ("import yaml", "yaml"),
        ("from . import other", "."),
        ("import machine", "machine"),
        ("def f():\n    from controller.deploy import run", "controller.deploy"),
    ],
)
def test_an_import_of_a_program_is_told(
    repository: Path, program: str, line: str, name: str
) -> None:
    (repository / program).write_text(f"{LOOK}{line}\n")
    (problem,) = host_programs.problems(repository)
    assert problem.startswith(f"{repository / program}:{2 + len(line.splitlines())}: ")
    assert f" imports {name};" in problem


def test_a_program_that_no_playbook_sends_is_told(repository: Path) -> None:
    (repository / "ansible/on_host/plan.py").write_text(LOOK)
    (problem,) = host_programs.problems(repository)
    assert "plan.py:1: no playbook sends it" in problem


def test_a_program_that_is_not_there_is_told(repository: Path) -> None:
    (repository / "ansible/on_host/look.py").unlink()
    (problem,) = host_programs.problems(repository)
    assert "check.yml:6: the script ../on_host/look.py is no file" in problem


def test_the_programs_of_this_repository_are_among_the_house_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert host_programs.problems(ROOT) == []
    monkeypatch.setattr(host_programs, "problems", lambda _top: ["found"])
    assert "found" in house_rules.check(ROOT)


def test_a_program_in_a_folder_that_tests_replace_is_found(repository: Path) -> None:
    play = repository / "ansible/playbooks/check.yml"
    play.write_text(PLAY.replace("../on_host/", "{{ folder | default('../on_host') }}/"))
    assert host_programs.problems(repository) == []

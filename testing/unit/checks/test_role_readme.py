"""READMEs of roles come from their argument specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import role_readme

if TYPE_CHECKING:
    from pathlib import Path


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

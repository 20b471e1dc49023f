from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import state_table
from hgfleet.backup import states

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "# Page\n\n## State\n\nold\n\n## Next\n"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / state_table.PAGE).write_text(PAGE)
    (tmp_path / state_table.PAGE).write_text(state_table.written(tmp_path, states.declared()))
    (tmp_path / "ansible/roles/new/templates").mkdir(parents=True)
    (tmp_path / "ansible/roles/new/tasks").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "folder"),
    [
        ("templates/new.service.j2", "StateDirectory=hgfleet-new\n", "/var/lib/hgfleet-new"),
        ("templates/new.service.j2", "LogsDirectory=hgfleet/web\n", ""),
        ("templates/new.service.j2", "RuntimeDirectory=new\n", ""),
        ("tasks/main.yml", "path: /srv/new/data\n", "/srv/new/data"),
        ("tasks/main.yml", "path: /srv/hg/repos\n", ""),
        ("tasks/main.yml", "path: /srv/hg\n", ""),
    ],
)
def test_state_that_is_not_declared_is_named(top: Path, name: str, text: str, folder: str) -> None:
    (top / "ansible/roles/new" / name).write_text(text)
    lines = state_table.problems(top, states.declared())
    assert [line.split()[1] for line in lines] == ([folder] if folder else [])


def test_an_old_table_is_named(top: Path) -> None:
    page = top / state_table.PAGE
    page.write_text(page.read_text().replace("nothing but a backup", "a wish"))
    assert len(state_table.problems(top, states.declared())) == 1


def test_the_table_of_this_checkout_is_up_to_date() -> None:
    assert state_table.main(["--check"]) == 0

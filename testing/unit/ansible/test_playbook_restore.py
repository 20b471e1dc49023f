"""The order of the steps of a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]


def tasks(book: str) -> list[dict[str, Any]]:
    plays = yaml.safe_load((ROOT / "ansible/playbooks" / book).read_text())
    return [task for play in plays for task in play.get("tasks", ())]


def test_nothing_is_stopped_or_restored_again_on_a_host_that_has_its_repositories() -> None:
    commands = [
        task for task in tasks("internal/restored_host.yml") if "ansible.builtin.command" in task
    ]
    assert len(commands) == 4
    assert {task["when"] for task in commands} == {"__restore_step == 'begun'"}
    (begin, *_, end) = [
        task for task in tasks("internal/restored_host.yml") if "restore_mark.yml" in str(task)
    ]
    assert begin["vars"] == {"restore_step": "begun"}
    assert end["vars"] == {"restore_step": "restored"}


def test_a_restore_ends_with_a_deploy_by_the_operator() -> None:
    for book in ("restore.yml", "restore-primary.yml"):
        plays = yaml.safe_load((ROOT / "ansible/playbooks" / book).read_text())
        names = [play.get("ansible.builtin.import_playbook", "") for play in plays]
        books = [name.removeprefix("internal/") for name in names]
        assert books[-1] == "restore_ended.yml"
        assert not [name for name in books if name.endswith("site.yml")]
        # The lock comes behind the checks, and before the first change.
        assert books.index("restore_begun.yml") < books.index("locked.yml")
        assert books.index("locked.yml") < books.index("restored_host.yml")

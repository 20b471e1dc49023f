"""The lock of the site that a restore takes, as its playbook asks for it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from controller.deploy import history
from testing.support import loading

ROOT = Path(__file__).resolve().parents[3]

site_lock = loading.module("ansible/on_host/site_lock.py")

BEGUN = "ansible/playbooks/internal/restore_begun.yml"
LOCKED = "ansible/playbooks/internal/restore_locked.yml"
ENDED = "ansible/playbooks/internal/restore_ended.yml"


def trusted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: trusted(one) for name, one in value.items()}
    if isinstance(value, list):
        return [trusted(one) for one in value]
    return trust_as_template(value) if isinstance(value, str) else value


def template(value: Any, **variables: Any) -> Any:
    given = {"playbook_dir": "/site/internal", "ansible_check_mode": False, **variables}
    return Templar(DataLoader(), given).template(trusted(value))


def lock_of(host: str, controller: str = "ctl1") -> dict[str, Any]:
    """Return what the playbook fixes for its run."""
    (first, *_) = yaml.safe_load((ROOT / BEGUN).read_text())
    (task,) = [one for one in first["tasks"] if "ansible.builtin.set_fact" in one]
    named = {"__restore_controller": controller, "__restore_who": f"ann@{controller}"}
    given = {**task["vars"], **named, "__restore_host": host}
    made: dict[str, Any] = template(task["ansible.builtin.set_fact"], **given)
    return made


def request(book: str, facts: dict[str, Any], **variables: Any) -> dict[str, Any]:
    plays = yaml.safe_load((ROOT / book).read_text())
    (play,) = [one for one in plays if one.get("ansible.builtin.import_playbook") == "lock.yml"]
    text = template(play["vars"]["lock_request"], hostvars={"localhost": facts}, **variables)
    found: dict[str, Any] = json.loads(base64.b64decode(text))
    return found


def test_a_restore_has_the_lock_until_its_end_and_no_deploy_comes_between(tmp_path: Path) -> None:
    facts = lock_of("hg1")
    taken = request(LOCKED, facts)
    assert site_lock.act(tmp_path, taken, 0.0) == {"before": ""}
    deploy = {"action": "take", "id": "d", "checkout": "a checkout", "said": "d", "entry": {}}
    others = [lock_of("hg2"), lock_of("hg1", "ctl2")]
    for asked in (deploy, *(request(LOCKED, one) for one in others)):
        told = site_lock.act(tmp_path, asked, 7200.0)["refusal"]
        assert "ann@ctl1 (restore of hg1; run it again" in told
    # The same one, after it broke off.
    assert site_lock.act(tmp_path, request(LOCKED, lock_of("hg1")), 7300.0) == {"before": ""}
    assert site_lock.act(tmp_path, request(ENDED, facts), 7400.0) == {}
    assert not (tmp_path / "lock.json").exists()
    shown = history.Shown(None, (tmp_path / "log.jsonl").read_text().splitlines(), 0.0)
    assert "restore of hg1 from its backup" in history.table([shown])
    assert "no deploy: done" in history.table([shown])


def test_a_dry_run_takes_no_lock(tmp_path: Path) -> None:
    asked = request(LOCKED, lock_of("hg1"), ansible_check_mode=True)
    assert site_lock.act(tmp_path, asked, 0.0)["lock"] is None
    assert not (tmp_path / "lock.json").exists()


def tasks(book: str) -> list[dict[str, Any]]:
    plays = yaml.safe_load((ROOT / "ansible/playbooks" / book).read_text())
    return [task for play in plays for task in play.get("tasks", ())]


def test_nothing_is_stopped_or_restored_again_on_a_host_that_has_its_repositories() -> None:
    commands = [
        one for one in tasks("internal/restored_host.yml") if "ansible.builtin.command" in one
    ]
    assert len(commands) == 4
    assert {one["when"] for one in commands} == {"__restore_step == 'begun'"}
    (begin, *_, end) = [
        one for one in tasks("internal/restored_host.yml") if "restore_mark.yml" in str(one)
    ]
    assert begin["vars"] == {"restore_step": "begun"}
    assert end["vars"] == {"restore_step": "restored"}


def test_a_restore_ends_with_a_deploy_by_the_operator() -> None:
    for book in ("restore.yml", "restore-primary.yml"):
        plays = yaml.safe_load((ROOT / "ansible/playbooks" / book).read_text())
        names = [one.get("ansible.builtin.import_playbook", "") for one in plays]
        books = [name.removeprefix("internal/") for name in names]
        assert books[-1] == "restore_ended.yml"
        assert not [name for name in books if name.endswith("site.yml")]
        # The lock comes behind the checks, and before the first change.
        assert books.index("restore_begun.yml") < books.index("restore_locked.yml")
        assert books.index("restore_locked.yml") < books.index("restored_host.yml")

"""A restore refuses a host that lives, and goes on where a run broke off."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testing.support import loading

restore_mark = loading.module("ansible/on_host/restore_mark.py")

ROOT = Path(__file__).resolve().parents[3]

SERVES = ["hgfleet-sshd.service"]


def ask(**changes: Any) -> dict[str, Any]:
    asked = {"action": "begin", "host": "hg1", "over": "", "at": "", "time": "2026-11-24T14:30:00Z"}
    return asked | changes


class Host:
    """A host on paper: its repositories, its mark, and whether it serves."""

    def __init__(self, folder: Path) -> None:
        self.mark, self.root = folder / "lib/restore.json", folder / "repos"
        self.root.mkdir()
        self.serving: list[str] = []

    def repository(self, path: str, content: str = "x") -> None:
        store = self.root / path / ".hg/store"
        store.mkdir(parents=True)
        (store / "00changelog.i").write_text(content)

    def begin(self, **changes: Any) -> dict[str, Any]:
        return restore_mark.begin(self.mark, self.root, ask(**changes), self.serving)

    def refused(self, **changes: Any) -> str:
        before = self.mark.read_text() if self.mark.exists() else None
        reason: str = self.begin(**changes).get("refusal", "")
        after = self.mark.read_text() if self.mark.exists() else None
        assert not reason or before == after
        return reason

    def note(self, step: str, **changes: Any) -> None:
        restore_mark.note(self.mark, ask(step=step, **changes))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_blank_host_is_restored(host: Host) -> None:
    host.root.rmdir()
    assert host.begin() == {"step": "begun"}
    assert json.loads(host.mark.read_text())["step"] == "begun"


def test_a_host_of_empty_repositories_lost_its_disk(host: Host) -> None:
    host.repository("team/tool", "")
    host.repository(".restore/copy")
    assert host.begin() == {"step": "begun"}


def test_a_host_that_has_changesets_is_refused_unless_it_is_named(host: Host) -> None:
    for number in range(5):
        host.repository(f"team/tool{number}")
    told = host.refused()
    assert (
        "hg1 has 5 repositories with changesets (team/tool0, team/tool1, team/tool2, ...)" in told
    )
    assert "-e restore_over=hg1" in told
    assert not host.mark.exists()
    assert host.refused(over="hg2") == (
        "restore_over is hg2, expected hg1, the host to restore, or nothing"
    )
    assert host.begin(over="hg1") == {"step": "begun"}


def test_a_run_that_broke_off_is_gone_on_with(host: Host) -> None:
    assert host.begin() == {"step": "begun"}
    host.repository("team/tool")
    assert host.begin() == {"step": "begun"}
    host.note("restored")
    # The parts that serve come after it.
    host.serving = SERVES
    assert host.begin() == {"step": "restored"}
    assert host.begin() == {"step": "restored"}


def test_the_same_command_goes_on_also_where_it_restored_over_a_host(host: Host) -> None:
    host.repository("team/tool")
    assert host.begin(over="hg1") == {"step": "begun"}
    host.note("restored")
    host.serving = SERVES
    assert host.begin(over="hg1") == {"step": "restored"}


def test_a_restored_host_that_lost_its_repositories_again_is_restored_again(host: Host) -> None:
    """The mark is on another disk than the repositories."""
    host.begin()
    host.note("restored")
    assert host.begin() == {"step": "restored"}
    assert host.begin(over="hg1") == {"step": "begun"}


def test_a_second_run_of_a_finished_restore_is_refused(host: Host) -> None:
    host.begin()
    host.note("finished")
    assert "the restore of hg1 was finished on 2026-11-24T14:30:00Z" in host.refused()
    assert host.begin(over="hg1") == {"step": "begun"}


def test_a_host_that_was_deployed_meanwhile_is_not_restored_over(host: Host) -> None:
    host.begin()
    host.repository("team/tool")
    host.serving = SERVES
    assert "the host serves meanwhile (hgfleet-sshd.service)" in host.refused()


def test_a_run_goes_on_with_the_same_backup(host: Host) -> None:
    host.begin(at="2026-11-24T14:30")
    told = host.refused(at="")
    assert "has restore_at 2026-11-24T14:30, got none" in told
    host.note("restored", at="2026-11-24T14:30")
    assert "restore_at" in host.refused(at="2026-11-25T14:30")
    # With the operator's word a restore begins again, with files of another time.
    assert host.begin(at="2026-11-25T14:30", over="hg1") == {"step": "begun"}


def test_the_mark_of_another_host_is_not_this_hosts(host: Host) -> None:
    host.begin(host="hg2")
    assert "this host was restored as hg2, got hg1" in host.refused()
    for damaged in ("", "{", "[]", '{"step": "restored"}'):
        host.mark.write_text(damaged)
        assert "got hg1" in host.refused()
    assert host.begin(over="hg1") == {"step": "begun"}


def test_a_dry_run_marks_nothing(host: Host) -> None:
    assert host.begin(dry=True) == {"step": "begun"}
    assert not host.mark.exists()


def test_the_program_prints_its_answer(host: Host) -> None:
    host.repository("team/tool")
    request = ask(mark=str(host.mark), root=str(host.root))
    encoded = base64.b64encode(json.dumps(request).encode()).decode()
    command = [sys.executable, str(ROOT / "ansible/on_host/restore_mark.py"), encoded]
    done = subprocess.run(command, capture_output=True, check=True, env={"PATH": str(host.root)})
    assert "team/tool" in json.loads(done.stdout)["refusal"]

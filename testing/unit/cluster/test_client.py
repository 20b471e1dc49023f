"""The part of this project's history that the local cluster begins with."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from controller.cluster import client

if TYPE_CHECKING:
    from pathlib import Path


def git(repository: Path, *arguments: str) -> list[str]:
    """Run git in a repository; return the lines of its output."""
    who = ("-c", "user.name=alice", "-c", "user.email=alice@hgfleet.test")
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def commit(repository: Path, message: str) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "--message", message)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with four commits, of which a cluster begins with three."""
    path = tmp_path / "checkout"
    path.mkdir()
    git(path, "init", "--quiet")
    for message in "1234":
        commit(path, message)
    monkeypatch.setattr(client, "ROOT", path)
    monkeypatch.setattr(client, "RECENT", 3)
    return path


def subjects(copy: Path) -> str:
    return "".join(git(copy, "log", "--format=%s", "main"))


def test_the_copy_begins_with_recent_commits_and_gets_all_later_ones(
    checkout: Path, tmp_path: Path
) -> None:
    copy = client._recent_history(tmp_path / "copy.git")
    assert subjects(copy) == "432"
    # `hg convert` reads the raw commit.
    (oldest,) = git(copy, "rev-list", "--max-parents=0", "main")
    assert not [line for line in git(copy, "cat-file", "-p", oldest) if line.startswith("parent")]

    commit(checkout, "5")
    commit(checkout, "6")
    assert subjects(client._recent_history(tmp_path / "copy.git")) == "65432"


@pytest.mark.usefixtures("checkout")
def test_a_short_history_is_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RECENT", 4)
    assert subjects(client._recent_history(tmp_path / "copy.git")) == "4321"


def test_commits_that_were_replaced_are_replaced_in_the_copy(
    checkout: Path, tmp_path: Path
) -> None:
    client._recent_history(tmp_path / "copy.git")
    git(checkout, "commit", "--quiet", "--allow-empty", "--amend", "--message", "x")
    assert subjects(client._recent_history(tmp_path / "copy.git")) == "x32"


def test_alerts_that_fire_are_told_with_their_severity_and_summary() -> None:
    def alert(name: str, state: str, severity: str = "page") -> dict[str, object]:
        labels = {"alertname": name, "severity": severity, "host": "proxy1"}
        return {"labels": labels, "annotations": {"summary": f"{name} of proxy1"}, "state": state}

    alerts = [alert("SshDown", "firing"), alert("UnitDown", "pending"), alert("Down", "firing")]
    alerts.append(alert("Watchdog", "firing", "heartbeat"))
    assert client.lines_of(alerts) == [
        "page   Down: Down of proxy1",
        "page   SshDown: SshDown of proxy1",
    ]

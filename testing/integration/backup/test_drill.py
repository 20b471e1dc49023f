"""Drills: only the newest backup of a repository proves that its pushes are safe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup import exposure, run_records
from hgfleet.backup.point import capture
from hgfleet.backup.restores import restore
from hgfleet.backup.restores.drill import sample
from hgfleet.core.errors import UnavailableError
from hgfleet.pushlog import log_file
from testing.integration.backup.copies import Host

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.support.primary import Primary

OWN = "a" * 32


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("HGRCPATH", "")
    monkeypatch.setattr(restore, "give", lambda *_, **__: None)
    return Host(tmp_path)


@pytest.fixture
def made(host: Host) -> Primary:
    """A repository with three backups: after its first push, its second and its third."""
    made = host.create("team/a", OWN, b"0")
    host.run()
    for content in (b"1", b"2"):
        with made.push():
            made.commit(content)
        host.run()
    return made


def status(host: Host, made: Primary) -> exposure.Exposure:
    """Return the state of the repository, as `hgfleet backup status` shows it."""
    runs = run_records.load(host.settings.state, run_records.RUNS)["repositories"]
    drills: dict[str, Any] = run_records.load(host.settings.state, run_records.DRILLS)
    pushes = log_file.tip(made.path / ".hg/store" / log_file.NAME).id
    return exposure.of(
        "team/a",
        pushes,
        runs["team/a"],
        drills.get("team/a"),
        mirrors=0,
        now=time.time(),
        drill_days=35,
        has_record=lambda drill: capture.has_record(
            made.path / ".hg", drill["log_end"], drill["push_hash"]
        ),
    )


def test_a_drill_fails_when_the_newest_backup_cannot_be_restored(host: Host, made: Primary) -> None:
    for number in (1, 2):
        host.restic.damage(number)
    failed, drills = host.drilled("team/a")
    assert failed == ["team/a"]
    # The older backup is a diagnosis.
    assert "its newest backup cannot be restored: 2026-11-24T12" in drills["team/a"]["error"]
    assert "an older backup can, of 2026-11-24T10:00:00 up to push 1" in drills["team/a"]["error"]
    backup_state = status(host, made)
    assert (backup_state.site, backup_state.pushes) == (2, 3)
    assert "its newest backup cannot be restored" in backup_state.reason
    # The next day the repository comes first.
    assert sample(["team/a", *"bcdefgh"], drills, 2, time.time())[0] == "team/a"


def test_a_drill_that_restores_nothing_says_that_all_pushes_are_exposed(
    host: Host, made: Primary
) -> None:
    for number in range(3):
        host.restic.damage(number)
    failed, drills = host.drilled("team/a")
    assert failed == ["team/a"]
    assert "no older backup that was tried can be restored" in drills["team/a"]["error"]
    assert status(host, made).site is None


def test_a_newest_backup_that_restic_cannot_read_is_not_passed_over(
    host: Host, made: Primary
) -> None:
    host.restic.unreadable = {"2"}
    failed, drills = host.drilled("team/a")
    assert failed == ["team/a"]
    assert "snapshot 2 cannot be read" in drills["team/a"]["error"]
    assert status(host, made).site == 1
    # A restore takes the older backup, and names the reason.
    restored = host.restore(restore.Wanted("team/a", OWN))
    assert restored.snapshot.id == "1"
    assert "snapshot 2 cannot be read" in restored.passed_over[0]


def test_a_store_without_the_last_backup_fails_the_drill(host: Host, made: Primary) -> None:
    host.restic.lose(1)
    failed, drills = host.drilled("team/a")
    assert failed == ["team/a"]
    assert "up to push 1, expected a backup up to push 3" in drills["team/a"]["error"]
    assert status(host, made).site == 2


def test_a_store_that_is_away_proves_nothing(host: Host, made: Primary) -> None:
    assert host.drilled("team/a")[0] == []
    before = run_records.load(host.settings.state, run_records.DRILLS)
    host.restic.is_away = True
    with pytest.raises(UnavailableError):
        host.drilled("team/a")
    assert run_records.load(host.settings.state, run_records.DRILLS) == before
    assert status(host, made).reason == ""


def test_pushes_since_the_drilled_backup_count_as_lost(host: Host, made: Primary) -> None:
    assert host.drilled("team/a")[0] == []
    assert status(host, made).site == 0
    for content in (b"3", b"4"):
        with made.push():
            made.commit(content)
    host.run()
    with made.push():
        made.commit(b"5")
    backup_state = status(host, made)
    # Two of them are in a backup that no drill has restored.
    assert (backup_state.site, backup_state.undrilled, backup_state.reason) == (3, 2, "")


def test_pushes_of_another_log_are_not_those_that_were_drilled(host: Host, made: Primary) -> None:
    """The repository was restored, and got as many pushes again."""
    assert host.drilled("team/a")[0] == []
    assert status(host, made).site == 0
    again = host.create("again/a", OWN, b"other")
    for content in (b"others", b"and more"):
        with again.push():
            again.commit(content)
    backup_state = status(host, again)
    assert (backup_state.pushes, backup_state.site) == (3, None)
    assert backup_state.reason == "its push log does not have the push that its last drill restored"
    # A shorter log does not have it either.
    shorter = host.create("shorter/a", OWN, b"other")
    assert status(host, shorter).site is None

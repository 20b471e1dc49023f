"""Which backup a repository is restored from, and the reasons where it is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup import restore
from hgfleet.backup.restic import Snapshot
from hgfleet.backup.settings import Settings
from hgfleet.core.errors import HostError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


class Restic:
    """Backups, of which none has a readable recovery point."""

    def __init__(self, *snapshots: Snapshot, point: str | None = None) -> None:
        self._snapshots, self.point = snapshots, point
        self.asked: list[str] = []

    def snapshots(self) -> tuple[Snapshot, ...]:
        return self._snapshots

    def dump(self, snapshot: str, _path: str) -> str | None:
        self.asked.append(snapshot)
        return self.point


SETTINGS = Settings("hg1", "s3:https://s3/backup/hg1", frozenset())


def snapshot(name: str, hour: int, *, paths: tuple[str, ...] = (), tag: str = restore.ALL) -> Any:
    return Snapshot(name, f"2026-11-24T{hour:02}:00:00Z", paths, (tag,))


def test_a_repository_that_no_backup_has_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no backup has it"):
        restore.restore(SETTINGS, Restic(), "team/x", tmp_path / "x")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_cannot_be_restored_is_named_with_its_reason(tmp_path: Path) -> None:
    restic = Restic(snapshot("b", 12), snapshot("a", 11), point="no point")
    with pytest.raises(HostError, match=r"no backup can be restored: .*T12:.*T11:"):
        restore.restore(SETTINGS, restic, "team/x", tmp_path / "x")  # type: ignore[arg-type]
    assert restic.asked == ["b", "a"]


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        restore.restore(SETTINGS, Restic(), "team/x", tmp_path)  # type: ignore[arg-type]


def test_backups_of_all_repositories_and_of_this_one_are_candidates_up_to_a_time() -> None:
    control = "/srv/hg/repos/team/x/.hg"
    all_ = [
        snapshot("new", 13),
        snapshot("own", 12, paths=(control,), tag="part"),
        snapshot("other", 11, paths=("/srv/hg/repos/team/y/.hg",), tag="part"),
        snapshot("old", 10),
    ]
    chosen = [one.id for one in restore.candidates(all_, control)]
    assert chosen == ["new", "own", "old"]
    at = snapshot("", 12).seconds
    assert [one.id for one in restore.candidates(all_, control, at)] == ["own", "old"]
    assert [one.id for one in restore.candidates(all_, control, at - 1)] == ["old"]

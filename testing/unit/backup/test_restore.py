"""Which backup a repository is restored from, and the reasons where it is none."""

from __future__ import annotations

import pwd
import stat
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup.restic.restic import Snapshot
from hgfleet.backup.restic.settings import Settings
from hgfleet.backup.restores import restore
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
        restore.restore(SETTINGS, Restic(), restore.Wanted("team/x"), tmp_path / "x")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_backup_that_cannot_be_restored_is_named_with_its_reason(tmp_path: Path) -> None:
    restic = Restic(snapshot("b", 12), snapshot("a", 11), point="no point")
    with pytest.raises(HostError, match=r"no backup can be restored: .*T12:.*T11:"):
        restore.restore(SETTINGS, restic, restore.Wanted("team/x"), tmp_path / "x")  # type: ignore[arg-type]
    assert dict.fromkeys(restic.asked) == dict.fromkeys(["b", "a"])


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        restore.restore(SETTINGS, Restic(), restore.Wanted("team/x"), tmp_path)  # type: ignore[arg-type]


ONE, OTHER = "a" * 32, "b" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{{"team/x": "{ONE}"}}', ONE),
        (f'{{"team/y": "{ONE}"}}', ""),
        ('{"team/x": ""}', ""),
        ('{"team/x": 7}', ""),
        ("[]", ""),
        ("", ""),
        ("{", ""),
    ],
)
def test_a_backup_says_which_repository_it_has_at_a_path(text: str, expected: str) -> None:
    assert restore.identity_at("team/x", text) == expected


@pytest.mark.root
def test_folders_above_a_restored_repository_are_its_owners(tmp_path: Path) -> None:
    """People create repositories next to it."""
    there = tmp_path / "repos"
    there.mkdir(mode=0o700)
    restore.make_folders(there / "people/bob", "nobody")
    user = pwd.getpwnam("nobody")
    for folder in (there / "people", there / "people/bob"):
        status = folder.stat()
        assert (status.st_uid, status.st_gid) == (user.pw_uid, user.pw_gid)
        assert stat.S_IMODE(status.st_mode) == 0o2750
    assert there.stat().st_uid == 0


def test_another_repository_than_the_wanted_one_is_told_with_the_way_to_it() -> None:
    told = restore.another(ONE, OTHER)
    assert told is not None
    assert f"it has repository {ONE}" in told
    assert f"--identity {ONE}" in told
    assert not any(restore.another(*pair) for pair in ((ONE, ONE), ("", ONE), (ONE, ""), ("", "")))


def test_no_second_repository_gets_the_identity_of_the_first() -> None:
    root = SETTINGS.repositories
    place = root / "team/x"
    for target in (None, place, root.with_name("elsewhere") / "x"):
        assert restore.target_problem(target, place, root) is None
    for target in (root / "team/y", place / "z", root):
        told = restore.target_problem(target, place, root)
        assert told is not None
        assert f"got {target}, expected {place}" in told


def test_backups_of_all_repositories_and_of_this_one_are_candidates_up_to_a_time() -> None:
    control = "/srv/hg/repos/team/x/.hg"
    all_ = [
        snapshot("new", 13),
        snapshot("own", 12, paths=(control,), tag="part"),
        snapshot("other", 11, paths=("/srv/hg/repos/team/y/.hg",), tag="part"),
        snapshot("old", 10),
    ]
    chosen = [candidate.id for candidate in restore.candidates(all_, control)]
    assert chosen == ["new", "own", "old"]
    at = snapshot("", 12).seconds
    assert [candidate.id for candidate in restore.candidates(all_, control, at)] == ["own", "old"]
    assert [candidate.id for candidate in restore.candidates(all_, control, at - 1)] == ["old"]

"""A host with repositories, and its backups as copies of folders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.backup import run_records
from hgfleet.backup.restic.restic import Result, Snapshot
from hgfleet.backup.restic.settings import Settings
from hgfleet.backup.restores import restore
from hgfleet.backup.restores.drill import drill
from hgfleet.backup.run import Run
from hgfleet.core import identity
from hgfleet.core.errors import UnavailableError
from hgfleet.core.report import Report
from testing.integration.support import site
from testing.integration.support.primary import Primary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.backup.restores.restore import Wanted


class Copies:
    """Backups as copies of folders, instead of restic's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._snapshots: list[Snapshot] = []
        self.is_away = False
        self.unreadable: set[str] = set()
        """Snapshots that restic cannot read."""

    def exists(self) -> bool:
        """Whether the store has the repository, as restic answers."""
        if self.is_away:
            raise UnavailableError("restic cat ended with 1: connection refused")
        return True

    def snapshots(self) -> list[Snapshot]:
        """Return the backups, the newest first."""
        return self._snapshots[::-1]

    def damage(self, number: int) -> None:
        """Cut the changelogs of a backup."""
        for file in (self._folder / str(number)).rglob("00changelog.i"):
            file.write_bytes(b"")

    def lose(self, number: int) -> None:
        """Take a backup, and all after it, out of the store."""
        del self._snapshots[number:]

    def _demand(self, snapshot: str) -> None:
        if self.is_away or snapshot in self.unreadable:
            raise UnavailableError(f"restic ended with 1: snapshot {snapshot} cannot be read")

    def backup(self, paths: Sequence[str], _excludes: Path, tags: Sequence[str]) -> Result:
        """Copy files and folders."""
        number = len(self._snapshots)
        for path in paths:
            copy = self._place(str(number), path)
            shutil.copytree(path, copy, symlinks=True, dirs_exist_ok=True)
        when = f"2026-11-24T{10 + number:02}:00:00+00:00"
        self._snapshots.append(Snapshot(str(number), when, tuple(paths), tuple(tags)))
        return Result(str(number), 0, 0, ())

    def dump(self, snapshot: str, path: str) -> str | None:
        """Return the content of a file of a backup."""
        self._demand(snapshot)
        file = self._place(snapshot, path)
        return file.read_text() if file.exists() else None

    def restore(self, snapshot: str, path: str, target: Path) -> None:
        """Restore a file or folder below a target."""
        self._demand(snapshot)
        place, copy = self._place(snapshot, path), Path(f"{target}{path}")
        if place.is_dir():
            shutil.copytree(place, copy, symlinks=True)
        elif place.exists():
            copy.parent.mkdir(parents=True)
            shutil.copy2(place, copy)

    def _place(self, snapshot: str, path: str) -> Path:
        return Path(f"{self._folder}/{snapshot}{path}")


class Host:
    """A host with repositories, and its backups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(
            *("hg1", "s3:https://s3/backup/hg1", frozenset({"ssh"})),
            repositories=folder / "repos",
            state=folder / "state",
            hg=site.HG,
        )
        self.settings.repositories.mkdir()
        self.settings.state.mkdir()
        self.restic = Copies(folder / "copies")
        self.report = Report("events", part="backup")

    def drilled(self, *paths: str) -> tuple[list[str], dict[str, Any]]:
        """Drill repositories; return those that failed, and the record of all drills."""
        failed = drill(self.settings, self.restic, self.report, paths)  # type: ignore[arg-type]
        return failed, run_records.load(self.settings.state, run_records.DRILLS)

    def create(self, path: str, own: str, content: bytes, *, named: bool = True) -> Primary:
        """Create a repository with a push."""
        made = Primary(self.settings.repositories / path, own)
        file = made.path / identity.FILE
        file.write_text(identity.text(own)) if named else file.unlink(missing_ok=True)
        with made.push():
            made.commit(content)
        return made

    def run(self) -> None:
        """Back up every repository."""
        assert Run(self.settings, self.restic, self.report).run().failed == {}  # type: ignore[arg-type]

    def restore(self, wanted: Wanted, name: str = "copy") -> restore.Restored:
        """Restore the newest backup of a repository to a folder of its own."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return restore.restore(self.settings, self.restic, wanted, self.folder / name)  # type: ignore[arg-type]

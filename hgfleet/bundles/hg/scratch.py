"""The scratch folder: snapshots, working folders, locks and the state cache of each repository.

All of it can be deleted while no run is at work; the next run makes it again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.hg.budget import Room
from hgfleet.core.errors import HostError
from hgfleet.core.files import file_name, repository_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORK: Final = "work"
SNAPSHOTS: Final = "snapshots"
STATES: Final = "known"
CLONE_CHECKS: Final = "checked"
READ_CHECKS: Final = "read"
PULL_CHECKS: Final = "pull-read"
LOCKS: Final = "locks"

_FILES: Final = (STATES, CLONE_CHECKS, READ_CHECKS, PULL_CHECKS)
"""Folders with a small file for each repository."""


class Scratch:
    """The scratch folders on disk and in RAM, with the room that is left in RAM."""

    def __init__(self, disk: Path, ram: Path, ram_bytes: int) -> None:
        self.disk, self.ram = disk, ram
        # Outside of its unit a run sees the empty mount point of the unit's folder in RAM, if any.
        self.room = Room(ram_bytes if os.access(ram, os.W_OK) else 0)

    def snapshot(self, repository: str) -> Path:
        """Return the place of a repository's snapshot on disk."""
        return self.disk / SNAPSHOTS / file_name(repository)

    def work(self, repository: str, *, in_ram: bool) -> Path:
        """Return the working folder of a repository."""
        return (self.ram if in_ram else self.disk) / WORK / file_name(repository)

    def check_owner(self) -> None:
        """Refuse to leave files in the scratch folder that the service could not remove."""
        try:
            owner = self.disk.stat().st_uid
        except OSError as error:
            raise HostError(
                f"{self.disk}: no scratch folder ({error.strerror}); the role `bundles` makes it"
            ) from error
        if owner != os.geteuid():
            raise HostError(
                f"{self.disk} belongs to user id {owner}, and this runs as {os.geteuid()}; "
                "use `systemctl start hgfleet-bundles.service`, which runs as the right user"
            )

    @contextlib.contextmanager
    def locked(self, repository: str) -> Iterator[bool]:
        """Hold the lock of a repository; False if another run holds it.

        The kernel frees the lock of a killed run, and this run removes its working folder.
        """
        locks = self.disk / LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / file_name(repository)).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            self._remove_work(repository)
            try:
                yield True
            finally:
                self._remove_work(repository)

    def _remove_work(self, repository: str) -> None:
        for in_ram in (False, True):
            remove(self.work(repository, in_ram=in_ram))

    def repositories(self) -> set[str]:
        """Return the names of all repositories that have something here."""
        names: set[str] = set()
        for scratch in (self.disk, self.ram):
            for folder in (WORK, SNAPSHOTS, *_FILES):
                with contextlib.suppress(OSError):
                    files = [path.name for path in (scratch / folder).iterdir()]
                    names |= {repository_of(file) for file in files if not file.startswith(".")}
        return names

    def forget(self, repository: str) -> None:
        """Delete the cached state and the check times of a repository."""
        for folder in _FILES:
            (self.disk / folder / file_name(repository)).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Delete a folder, although an hg that outlived its killed run may still write into it."""
    for last in (False, False, True):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not folder.exists():
                return
        except OSError as error:
            if last or error.errno != errno.ENOTEMPTY:
                raise
        else:
            return

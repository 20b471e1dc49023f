"""Exchange of the old store for the new store, under the lock of the repository."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files
from hgfleet.core.errors import HostError
from hgfleet.storage import repository_formats, work_folder
from hgfleet.storage.contents import contents
from hgfleet.storage.opened import open_repository
from hgfleet.storage.revlogs import DamagedError

if TYPE_CHECKING:
    from hgfleet.core.durable import Disk
    from hgfleet.storage.contents import Contents

_TRANSIENT: Final = ("undo", "journal")
_DERIVED: Final = ("lock", "lock.break", "fncache", "requires")
"""Files of a store that are not copied: the new store has its own."""


def exchange(repository: Path, source: Any, disk: Disk) -> None:
    """Put the new store of a repository in its place; `source` is the locked repository.

    `disk` is that of the repository, opened before the new store was written.
    Raises DamagedError and HostError, and then the old store is in its place.
    """
    control = repository / ".hg"
    folder = control / work_folder.WORK
    store, new = control / "store", folder / ".hg/store"
    _copy_others(store, new)
    before = contents(source)
    if contents(open_repository(folder)).without_bookmarks() != before.without_bookmarks():
        raise DamagedError("the copy has other changesets, phases or markers than the original")
    _make_share_safe(control, source)
    # Files of `hg rollback` name files of the old store.
    for transient in (*new.glob("undo*"), *control.glob("undo*")):
        transient.unlink()
    # Both folders show the lock, so a push that waits for the lock goes on waiting.
    (new / "lock").unlink(missing_ok=True)
    (new / "lock").symlink_to((store / "lock").readlink())
    new.chmod(stat.S_IMODE(store.stat().st_mode))
    work_folder.sync(disk)
    _exchange_folders(repository, store, new, before)
    (folder / work_folder.COMPLETE).unlink(missing_ok=True)
    (folder / work_folder.SINCE).touch()
    # The lock of the old store: pushes that waited for it now find the new store.
    (new / "lock").unlink()


def _exchange_folders(repository: Path, store: Path, new: Path, before: Contents) -> None:
    """Exchange the folders, and exchange them back if the contents differ afterwards."""
    try:
        work_folder.rename_exchange(store, new)
    except OSError as problem:
        (new / "lock").unlink()
        raise HostError(f"{store}: cannot be exchanged ({problem.strerror})") from problem
    try:
        after = contents(open_repository(repository))
    except BaseException:
        work_folder.rename_exchange(store, new)
        (new / "lock").unlink()
        raise
    if after != before:
        work_folder.rename_exchange(store, new)
        (new / "lock").unlink()
        raise DamagedError(f"put back: it was {before}, and with the new store it is {after}")


def _copy_others(store: Path, new: Path) -> None:
    """Copy all files other than revlogs: phases, markers, push log, and files of extensions."""
    for entry in sorted(os.scandir(store), key=lambda entry: entry.name):
        name = entry.name
        if name.startswith(_TRANSIENT) or name in _DERIVED or _is_of_revlogs(name):
            continue
        to = new / name
        if entry.is_dir(follow_symlinks=False):
            if name in ("data", "meta", "dh"):
                continue
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(entry.path, to, symlinks=True)
        elif entry.is_symlink():
            to.unlink(missing_ok=True)
            to.symlink_to(Path(entry.path).readlink())
        elif entry.is_file():
            shutil.copy2(entry.path, to)
    for name in ("phaseroots", "obsstore"):
        if not (store / name).exists():
            (new / name).unlink(missing_ok=True)


def _is_of_revlogs(name: str) -> bool:
    return name.startswith(("00changelog", "00manifest"))


def _make_share_safe(control: Path, source: Any) -> None:
    """Move the requirements of the store into the store, so both are exchanged together.

    The file in the store is written first, because no process reads it until the other file
    changes.
    """
    current = {name.decode("ascii") for name in source.requirements}
    if repository_formats.SHARE_SAFE in current:
        return
    mode = stat.S_IMODE((control / "requires").stat().st_mode)
    of_working_copy = current & repository_formats.WORKING_COPY
    for file, names in (
        (control / "store/requires", current - of_working_copy),
        (control / "requires", of_working_copy | {repository_formats.SHARE_SAFE}),
    ):
        files.replace(file, "".join(f"{name}\n" for name in sorted(names)), mode=mode)

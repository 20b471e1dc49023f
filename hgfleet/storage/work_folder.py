"""Working folder of an upgrade in a repository's `.hg`, and the system calls for it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import durable, files, swap
from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.core.stored_time import is_future
from hgfleet.storage import repository_formats

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK: Final = "storage-upgrade"
"""Below .hg: a repository with the new store, and after the exchange with the old store."""

AWAY: Final = "storage-upgrade.remove"
"""The folder during its deletion. The rename keeps half of a store from being taken for a store."""

COMPLETE: Final = "complete"
"""In the folder: the new store was complete at some moment, and was compared."""

SINCE: Final = "since"
"""In the folder: the time when the store became the old store (seconds since 1970)."""

KEPT: Final = "kept"
"""In the folder: the seconds for which the old store stays (`--keep-backup`)."""

FORGOTTEN_SECONDS: Final = 86_400
"""The time after which a reader no longer keeps an old store from its deletion."""

rename_exchange: Final = swap.rename_exchange


def sync(disk: durable.Disk) -> None:
    """Write all data of a disk to it, which was opened before the writes. Raises OSError."""
    disk.sync()


def check_exchange(control: Path) -> None:
    """Raise HostError if the file system cannot exchange folders."""
    with tempfile.TemporaryDirectory(prefix=f"{WORK}.try.", dir=control) as name:
        first, other = Path(name) / "one", Path(name) / "other"
        first.mkdir()
        other.mkdir()
        try:
            rename_exchange(first, other)
        except OSError as error:
            raise HostError(
                f"{control}: its file system cannot exchange two folders in one step "
                f"({error.strerror}); ext4, XFS, btrfs and tmpfs can"
            ) from error


@contextlib.contextmanager
def claimed(control: Path) -> Iterator[None]:
    """Be the only upgrade of a repository; the kernel ends the claim of a killed process.

    Raises TemporaryError.
    """
    descriptor = os.open(control, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise TemporaryError("another upgrade is at work on it") from error
    finally:
        os.close(descriptor)


def requirements(control: Path) -> frozenset[str]:
    """Read the requirements of a repository, given its .hg. Raises HostError."""
    requirements_: frozenset[str] = frozenset()
    for name in ("requires", "store/requires"):
        try:
            requirements_ |= repository_formats.parse((control / name).read_text("ascii"))
        except FileNotFoundError:
            if name == "requires":
                raise HostError(f"{control}: no repository ({name} is missing)") from None
        except (OSError, UnicodeError) as error:
            raise HostError(f"{control}/{name}: {error}") from error
        if repository_formats.SHARE_SAFE not in requirements_:
            # The other file would be a leftover that Mercurial does not read.
            break
    return requirements_


def is_read(store: Path) -> bool:
    """Whether a reader has an old store open (hgext/pinned_store.py)."""
    descriptor = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Delete the working folder; a kill at any point does no harm."""
    away = folder.with_name(AWAY)
    _delete(away)
    if folder.exists():
        folder.rename(away)
        _delete(away)


def keep_for(folder: Path, seconds: float | None) -> None:
    """Record how long the store in the working folder stays once it is the old store.

    Called before the exchange, so that a run after a kill knows it too.
    """
    if seconds is None:
        (folder / KEPT).unlink(missing_ok=True)
    else:
        files.replace(folder / KEPT, f"{seconds:.0f}\n", mode=0o640)


def _kept_seconds(folder: Path) -> float:
    """Read the seconds from `keep_for`; a damaged file means for ever, until `--prune-backups`."""
    try:
        seconds = float((folder / KEPT).read_text("ascii"))
    except FileNotFoundError:
        return 0
    except ValueError:
        return math.inf
    return seconds if seconds >= 0 else math.inf


def stays(age: float, kept: float, *, is_read: bool, prune: bool) -> bool:
    """Whether an old store of this age has to stay. All are seconds."""
    if not prune and age < kept:
        return True
    # A dead reader holds no lock; a reader that is a day old counts as hung.
    return is_read and age < FORGOTTEN_SECONDS


def remove_old(control: Path, keep: float | None, *, prune: bool = False) -> bool:
    """Delete the old store of a current repository; False if it has to stay for now.

    `keep` is in seconds, and so is the time that the run recorded which made the store: the longer
    time counts. `prune` ignores both.
    """
    folder = control / WORK
    old = folder / ".hg/store"
    if old.is_dir():
        since = folder / SINCE
        if not since.exists() or is_future(since.stat().st_mtime, time.time()):
            # Its days begin now: a time from the future would keep the store until then.
            since.touch()
        age = time.time() - since.stat().st_mtime
        kept = max(keep or 0, _kept_seconds(folder))
        if stays(age, kept, is_read=is_read(old), prune=prune):
            return False
    remove(folder)
    return True


def _delete(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        shutil.rmtree(folder)


def measure(store: Path) -> tuple[int, int]:
    """Return bytes and number of the files of a store, without files that vanish just now."""
    size = count = 0
    for folder, _, names in os.walk(store):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(f"{folder}/{name}").st_size
                count += 1
    return size, count

"""Data on the disk before it is acknowledged: one call for all unsaved data of a file system.

A transaction of hg writes many files and folders and syncs none of them. syncfs(2) writes the data
and metadata of a file system, and concurrent calls share the work in the kernel: a sync that
begins after a transaction has ended covers it, whichever process calls.

`[hgfleet] durable = no` in the hgrc of a host does without; pushes that were acknowledged in the
last seconds before a power cut are lost then.

SSH sessions import this module, so it does without pathlib, and loads ctypes for the call only.
"""

from __future__ import annotations

import os

from hgfleet.core import hgrc
from hgfleet.core.errors import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

SETTING: Final = "durable"
"""Of the section `hgfleet` of the hgrc."""

_OFF: Final = frozenset({"no", "false", "0", "off", "never"})
"""As Mercurial reads booleans."""


class Disk:
    """The disk of a folder, opened before the writes that it is to confirm.

    Linux tells of a write that failed once to each descriptor that was open then. To one that was
    opened later it tells only what no other descriptor has heard. So another process may hear of
    the loss of these writes, and a descriptor that is opened after them hears of none.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open it; raises OSError."""
        self.folder = os.fspath(folder)
        self._descriptor = -1
        self._descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        """Have all data of the file system on its disk at the return (I/O).

        Raises OSError: the disk has not confirmed writes since the opening, or the last sync.
        """
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(self._descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self.folder)

    def is_there(self) -> bool:
        """Whether the folder is on this file system still; raises OSError where it is gone."""
        return os.stat(self.folder).st_dev == os.fstat(self._descriptor).st_dev  # noqa: PTH116

    def close(self) -> None:
        """Close it; again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Kept:
    """The disk of a folder for the life of a program, which confirms it again and again."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open it; a folder that is not there yet is opened when it is confirmed (I/O)."""
        self._folder = os.fspath(folder)
        self._disk: Disk | None = None
        try:
            self._disk = Disk(folder)
        except OSError:
            return

    def confirm(self) -> None:
        """Sync as `Disk` does; raises HostError where the disk does not confirm (I/O)."""
        try:
            if self._disk is None or not self._disk.is_there():
                # Another file system was mounted there.
                former, self._disk = self._disk, Disk(self._folder)
                if former is not None:
                    with former:
                        former.sync()
            self._disk.sync()
        except OSError as error:
            raise HostError(
                f"the disk of {self._folder} does not confirm its writes: {error.strerror}; "
                "nothing is acknowledged from it, see the kernel's log for the disk's errors"
            ) from error


def sync(folder: str | os.PathLike[str]) -> None:
    """Have all data of the folder's file system on its disk at the return (I/O).

    Raises OSError. Where other processes sync the same disk, a `Disk` that was opened before the
    writes hears of their loss, and this may not.
    """
    with Disk(folder) as disk:
        disk.sync()


def is_wanted(text: str) -> bool:
    """Whether a host syncs before it acknowledges, by the text of its hgrc."""
    return hgrc.setting(text, SETTING).lower() not in _OFF


def is_wanted_by(file: str | os.PathLike[str]) -> bool:
    """Whether a host syncs before it acknowledges, by its hgrc; a host without one does (I/O)."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:  # noqa: PTH123
            return is_wanted(opened.read())
    except OSError:
        return True

"""Durability: a single call writes all unsaved data of a file system to its disk.

A transaction of hg writes many files and folders and syncs none of them. syncfs(2) writes the data
and metadata of a whole file system, and the kernel shares the work between concurrent calls. A sync
that begins after the end of a transaction covers that transaction, whichever process calls it.

`[hgfleet] durable = no` in the hgrc of a host turns this off. A power cut then loses pushes that
were acknowledged in the last seconds before it.

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
"""The setting in section `hgfleet` of the hgrc."""

_OFF: Final = frozenset({"no", "false", "0", "off", "never"})
"""As Mercurial reads booleans."""


class Disk:
    """The disk of a folder, opened before the writes whose safety it confirms.

    Linux reports a failed write once to each descriptor that was open at the time of the failure. A
    descriptor that is opened later gets the report only if no other descriptor had it before. So a
    descriptor that is opened after the writes may miss their loss, because the sync of another
    process has taken the report.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open it; raises OSError."""
        self.folder = os.fspath(folder)
        self._descriptor = -1
        self._descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        """Write all data of the file system to its disk, and return when it is there (I/O).

        Raises OSError if a write failed since this disk was opened or last synced.
        """
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(self._descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self.folder)

    def is_there(self) -> bool:
        """Whether the folder is still on this file system; raises OSError if it is gone."""
        return os.stat(self.folder).st_dev == os.fstat(self._descriptor).st_dev  # noqa: PTH116

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
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
    """The disk of a folder for the life of a program that syncs it again and again."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open the folder's disk, now or, for a missing folder, at the first sync (I/O)."""
        self._folder = os.fspath(folder)
        self._disk: Disk | None = None
        try:
            self._disk = Disk(folder)
        except OSError:
            return

    def confirm(self) -> None:
        """Sync as `Disk` does; raises HostError if the disk does not confirm (I/O)."""
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
    """Write all data of the folder's file system to its disk, and return when it is there (I/O).

    Raises OSError. Where other processes sync the same disk, this function may miss the loss of
    earlier writes; a `Disk` that was opened before the writes does not.
    """
    with Disk(folder) as disk:
        disk.sync()


def is_wanted(text: str) -> bool:
    """Whether a host syncs before it acknowledges, by the text of its hgrc."""
    return hgrc.setting(text, SETTING).lower() not in _OFF


def is_wanted_by(file: str | os.PathLike[str]) -> bool:
    """Whether a host syncs before it acknowledges, by its hgrc; without an hgrc it does (I/O)."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:  # noqa: PTH123
            return is_wanted(opened.read())
    except OSError:
        return True

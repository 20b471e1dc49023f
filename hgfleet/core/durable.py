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


def sync(folder: str | os.PathLike[str]) -> None:
    """Have all data of the folder's file system on its disk at the return (I/O).

    Raises OSError: the disk has not confirmed the writes.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(folder))
    finally:
        os.close(descriptor)


def confirm(folder: str | os.PathLike[str]) -> None:
    """Sync as `sync` does; raises HostError where the disk does not confirm (I/O)."""
    try:
        sync(folder)
    except OSError as error:
        raise HostError(
            f"the disk of {os.fspath(folder)} does not confirm its writes: {error.strerror}; "
            "nothing is acknowledged from it, see the kernel's log for the disk's errors"
        ) from error


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

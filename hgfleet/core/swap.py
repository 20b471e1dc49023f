"""Exchange of two files or folders in a single system call, for which Python has no function."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2

_libc = ctypes.CDLL(None, use_errno=True)


def rename_exchange(first: Path, second: Path) -> None:
    """Exchange two folders atomically: neither is missing at any moment (Linux 3.15).

    Raises OSError, and leaves both in place then.
    """
    done = _libc.renameat2(
        _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), ctypes.c_uint(_EXCHANGE)
    )
    if done:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first))

"""Lock of a host's terms: only one command at a time begins a term, or gives pushes up.

A command reads, changes and writes terms and the file of pushes that were given up. Without the
lock, a command could overwrite the changes of another command.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import TemporaryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PATIENCE_SECONDS: Final = 120.0
"""Wait for another command, which itself waits for brokers and for pushes on their way."""

PAUSE_SECONDS: Final = 0.1


@contextlib.asynccontextmanager
async def alone(terms: Path, patience: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
    """Hold the lock of a folder of terms (I/O). Raises TemporaryError and OSError.

    The lock is on the folder, so no file is left behind, and the kernel frees it at the end of the
    process.
    """
    until = time.monotonic() + patience
    with files.open_folder(terms) as folder:
        while not files.try_lock(folder):
            if time.monotonic() >= until:
                raise TemporaryError(
                    "another command of this host has been beginning a term, or lifting a fence, "
                    f"for {patience:g} s; run this command again when the other has ended"
                )
            await asyncio.sleep(PAUSE_SECONDS)
        yield

"""The folder that a session opened a repository at, checked again when the session writes."""

from __future__ import annotations

import os


class OpenedPlace:
    """A folder held open, so that the kernel gives its inode to no other folder.

    Raises OSError if it cannot be opened.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def is_there(self) -> bool:
        """Whether the path still leads to this folder."""
        try:
            there = os.stat(self._path)  # noqa: PTH116  (bytes, and pathlib is slow to import)
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))

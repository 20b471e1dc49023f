"""A JSON line for each request, appended to a file that may be rotated at any time.

A file and not the journal: journald limits the rate of a service and drops the lines above it, and
these lines are evidence (how many bytes of changesets this server sent, and how many came from the
object store). Each line is a single write(2) to a file opened for appending, so the lines of
several worker processes do not mix.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

REOPEN_S: Final = 1.0
"""How long after a rotation lines may still go to the old file (seconds)."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class AccessLog:
    """The file of the log; None is standard error, which systemd writes to the journal."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor = -1
        self._inode: tuple[int, int] | None = None
        self._checked = 0.0

    def write(self, event: dict[str, object]) -> None:
        """Write a line; a full disk loses lines and never a request."""
        now = time.time()
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        line = _encode({"time": stamp.replace("+00:00", "Z"), **event}) + "\n"
        if self._path is None:
            sys.stderr.write(line)
            return
        try:
            os.write(self._open(self._path, now), line.encode("ascii"))
        except OSError as error:
            self._complain(error)

    def _open(self, path: Path, now: float) -> int:
        with self._lock:
            if self._descriptor >= 0 and 0 <= now - self._checked < REOPEN_S:
                return self._descriptor
            self._checked = now
            try:
                stat = path.stat()
                current: tuple[int, int] | None = (stat.st_dev, stat.st_ino)
            except OSError:
                current = None
            if self._descriptor < 0 or current != self._inode:
                # O_APPEND: several processes write; 0640: the addresses in it are private
                new = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
                if self._descriptor >= 0:
                    # Another thread may be writing to the old descriptor: replace it instead of
                    # closing it.
                    os.dup2(new, self._descriptor, inheritable=False)
                    os.close(new)
                else:
                    self._descriptor = new
                opened = os.fstat(self._descriptor)
                self._inode = (opened.st_dev, opened.st_ino)
            return self._descriptor

    def _complain(self, error: OSError) -> None:
        print(f"access log {self._path}: {error}", file=sys.stderr, flush=True)

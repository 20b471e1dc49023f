"""Look at a host before a deploy: system, clock, disk, names.

Runs on a host (`internal/state.yml`) and uses nothing but Python's own modules. The arguments are
the controller's time and the names that have to resolve: `machine.py SECONDS NAME...`. It prints a
line of JSON, which `fitness` judges.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDERS = ("/", "/opt", "/srv", "/var")


def read(controller: float, names: Sequence[str]) -> dict[str, object]:
    """Look at this host; `controller` is the time of the controller, in seconds of the epoch."""
    ahead = time.time() - controller
    return {
        "system": _system(),
        "clock_seconds": ahead,
        "free_bytes": _free(),
        "unresolved": [name for name in names if not _resolves(name)],
    }


def _system() -> str:
    try:
        lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    except OSError:
        return ""
    words = dict(line.split("=", 1) for line in lines if "=" in line)
    return f"{words.get('ID', '')} {words.get('VERSION_ID', '')}".replace('"', "").strip()


def _free() -> dict[str, int]:
    by_device: dict[int, tuple[str, int]] = {}
    for folder in map(Path, FOLDERS):
        if folder.is_dir():
            status = os.statvfs(folder)
            free = status.f_bavail * status.f_frsize
            by_device.setdefault(folder.stat().st_dev, (str(folder), free))
    return dict(by_device.values())


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


if __name__ == "__main__":
    print(json.dumps(read(float(sys.argv[1]), sys.argv[2:])))

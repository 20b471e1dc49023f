"""Units that execute files which an update has replaced: their libraries and programs of before.

Debian's packages restart some of their own units. No package restarts a unit because of a library,
and none restarts a unit of hgfleet, so that a security update may be installed and not in effect.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from pathlib import Path

# In /proc/PID/maps: 7f0c1000-7f0c2000 r-xp 00000000 fe:01 1234   /usr/lib/.../libssl.so.3 (deleted)
_REPLACED: Final = re.compile(
    r"^\S+ ..x. .* (?P<path>/(?:usr|lib|lib64|bin|sbin|opt)/\S+) \(deleted\)$", re.MULTILINE
)
_UNIT: Final = re.compile(r"/([^/\s]+\.service|init\.scope)(?=/|\s|$)")
_SESSIONS: Final = re.compile(r"user@\d+\.service")


def replaced(maps: str) -> str | None:
    """Return a file that a process executes and that is replaced, by its `maps`."""
    found = _REPLACED.search(maps)
    return found["path"] if found else None


def unit_of(cgroup: str) -> str | None:
    """Return the unit of a process, by its `cgroup`; None for logins of people."""
    names = _UNIT.findall(cgroup)
    return names[-1] if names and not any(map(_SESSIONS.fullmatch, names)) else None


@dataclass(frozen=True, slots=True)
class Outdated:
    """Units with a process on a replaced file, each with such a file.

    `unseen` counts processes that the kernel does not show: without CAP_SYS_PTRACE, those of other
    users.
    """

    units: dict[str, str]
    unseen: int = 0


def read(processes: Path) -> Outdated:
    """Look at all processes (I/O)."""
    outdated: dict[str, str] = {}
    unseen = 0
    for folder in sorted(processes.glob("[0-9]*")):
        try:
            path = replaced((folder / "maps").read_text("utf-8", "replace"))
            unit = unit_of((folder / "cgroup").read_text("utf-8", "replace")) if path else None
        except (FileNotFoundError, ProcessLookupError):
            # It has ended.
            continue
        except PermissionError:
            unseen += 1
            continue
        if path and unit:
            outdated.setdefault(unit, path)
    return Outdated(dict(sorted(outdated.items())), unseen)


def write(file: Path, outdated: Outdated) -> None:
    """Write the state that `hgfleet metrics` reads (I/O)."""
    text = json.dumps({"looked": time.time(), **asdict(outdated)})
    files.replace(file, text + "\n", mode=0o644, durable=False)

"""Whether hosts can take a deploy: system, sudo, clock, disk, names.

This file runs on a host as well (`playbooks/state.yml`), with the controller's time and the names
that have to resolve: `machine.py SECONDS NAME...`. It prints a line of JSON, and it uses nothing
but Python's own modules.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSTEM = "debian 13"
"""The ID and VERSION_ID of the hosts' /etc/os-release."""

CLOCK_SECONDS = 30.0
"""The most seconds between the clocks of a host and the controller, the way to the host included.

Certificates made by the controller begin at its time, and brokers compare leases with theirs.
"""

FREE_BYTES = 1 << 30
"""The least free space: packages take some 500 MB, a release 150 MB while it is unpacked."""

FOLDERS = ("/", "/opt", "/srv", "/var")


class Machine(NamedTuple):
    """A host as it is: OS, seconds that its clock is ahead, free bytes by folder, wrong names."""

    system: str
    clock_seconds: float
    free_bytes: Mapping[str, int]
    unresolved: Sequence[str]


def problems(machine: Machine, sudo: str) -> list[str]:
    """Return a sentence for each reason why the host cannot take a deploy.

    `sudo` is the reason why no command can be run as root, empty if one was.
    """
    found = []
    if sudo:
        found.append(
            f"no command runs as root ({sudo}): let the account use sudo, and name the file with"
            " its password in ANSIBLE_BECOME_PASSWORD_FILE"
        )
    if machine.system != SYSTEM:
        found.append(f"its system is {machine.system or 'unknown'}, expected {SYSTEM}")
    if abs(machine.clock_seconds) > CLOCK_SECONDS:
        side = "ahead of" if machine.clock_seconds > 0 else "behind"
        found.append(
            f"its clock is {abs(machine.clock_seconds):.0f} s {side} the controller's: set it, and"
            " keep it right (systemd-timesyncd or chrony)"
        )
    found += [
        f"{folder} has {free >> 20} MiB free, expected {FREE_BYTES >> 20} MiB"
        for folder, free in machine.free_bytes.items()
        if free < FREE_BYTES
    ]
    if machine.unresolved:
        found.append(f"no address for {', '.join(machine.unresolved)}: DNS, or its /etc/hosts")
    return found


def parse(data: Mapping[str, Any]) -> Machine:
    """Read what a host printed; raises KeyError, TypeError or ValueError for anything else."""
    return Machine(
        str(data["system"]),
        float(data["clock_seconds"]),
        {str(folder): int(free) for folder, free in data["free_bytes"].items()},
        [str(name) for name in data["unresolved"]],
    )


def read(controller: float, names: Sequence[str]) -> Machine:
    """Look at this host; `controller` is the time of the controller, in seconds of the epoch."""
    ahead = time.time() - controller
    return Machine(_system(), ahead, _free(), [name for name in names if not _resolves(name)])


def _system() -> str:
    try:
        lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    except OSError:
        return ""
    words = dict(line.split("=", 1) for line in lines if "=" in line)
    return f"{words.get('ID', '')} {words.get('VERSION_ID', '')}".replace('"', "").strip()


def _free() -> dict[str, int]:
    found: dict[int, tuple[str, int]] = {}
    for folder in map(Path, FOLDERS):
        if folder.is_dir():
            status = os.statvfs(folder)
            free = status.f_bavail * status.f_frsize
            found.setdefault(folder.stat().st_dev, (str(folder), free))
    return dict(found.values())


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


if __name__ == "__main__":
    print(json.dumps(read(float(sys.argv[1]), sys.argv[2:])._asdict()))

"""Complete the steps that an interrupted run of site.yml left undone on this host.

Runs on a host (`site.yml`) and uses nothing but Python's own modules. A run that is killed, or
fails, between writing a file and the handler that restarts its service loses the handler: the next
run finds the file as it should be. So a run leaves a mark on each host while it lasts:

- `unfinished.py begin` makes the mark; prints a line of JSON, `broken`: whether there was a mark;
- `unfinished.py renew BEGAN` restarts or reloads every unit that was started before BEGAN, the time
  at which this run began on the host; prints the names of these units.

The last play of site.yml removes the mark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = Path("/etc/hgfleet/unfinished")
FORMER_NOTE = Path("/etc/hgfleet/inputs.json")
"""Hashes that ./deploy of an earlier release left, and compares: they are wrong after a run."""

RELOADED = ("haproxy.service", "nginx.service", "ssh.service")
"""Programs of Debian that read their files again without a restart, which would end connections."""
RESTARTED = ("slapd.service", "prometheus*.service")
EVERY_HOST = "systemd-journald.service"


@dataclass(frozen=True, slots=True)
class Unit:
    """An active unit: when it was started, and when its files were written; Unix times, seconds."""

    name: str
    started: int
    written: float


def renewal(units: Iterable[Unit], began: float) -> dict[str, list[str]]:
    """Return the units that are older than a run, by the command of systemctl that they need.

    A socket stays open but for new files of its own, and takes its service along: systemd opens no
    socket whose service runs.
    """
    restarted, reloaded = set(), set()
    for unit in units:
        has_new_files, is_socket = unit.written > unit.started, unit.name.endswith(".socket")
        if unit.started >= began or (is_socket and not has_new_files):
            continue
        if unit.name in RELOADED and not has_new_files:
            reloaded.add(unit.name)
            continue
        restarted.add(unit.name)
        if is_socket:
            restarted.add(f"{unit.name.removesuffix('.socket')}.service")
    return {"restart": sorted(restarted), "reload": sorted(reloaded)}


def _systemctl(*arguments: str) -> str:
    done = subprocess.run(
        ["/usr/bin/systemctl", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def active() -> list[Unit]:
    """Return the active units that roles configure."""
    patterns = ("hgfleet-*", *RELOADED, *RESTARTED, EVERY_HOST)
    properties = "--property=Id,ActiveState,ActiveEnterTimestamp,FragmentPath,DropInPaths,Type"
    shown = _systemctl("show", "--timestamp=unix", properties, *patterns)
    return [unit for block in shown.split("\n\n") if (unit := unit_of(block))]


def unit_of(block: str) -> Unit | None:
    """Return the unit of a block of `systemctl show`; None if it is not active, or a job."""
    values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    started = values.get("ActiveEnterTimestamp", "").removeprefix("@")
    # A job that ends by itself reads its files each time that it starts.
    if values.get("ActiveState") != "active" or values.get("Type") == "oneshot":
        return None
    files = [values["FragmentPath"], *values["DropInPaths"].split()]
    written = [path.stat().st_mtime for name in files if name and (path := Path(name)).is_file()]
    return Unit(values["Id"], int(started), max(written, default=0.0))


def renew(began: float) -> list[str]:
    """Bring new files into effect for older units and the trust store; return the units."""
    _systemctl("daemon-reload")
    subprocess.run(["/usr/sbin/update-ca-certificates"], stdout=subprocess.DEVNULL, check=True)
    needed = renewal(active(), began)
    for command, names in needed.items():
        if names:
            _systemctl(command, *names)
    return sorted(name for names in needed.values() for name in names)


def begin() -> bool:
    """Make the mark; return whether an earlier run left a mark."""
    MARK.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    FORMER_NOTE.unlink(missing_ok=True)
    try:
        MARK.touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


if __name__ == "__main__":
    if sys.argv[1] == "begin":
        print(json.dumps({"broken": begin(), "began": time.time()}))
    else:
        print(" ".join(renew(float(sys.argv[2]))))

"""A fast way to run commands in a container of the cluster: its namespaces, without the engine.

`docker exec` takes 62 ms for a command, entering the namespaces 4 ms, and a run of the tests enters
some thousand times. Entering needs root; other people's commands go through the engine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_SEARCHED: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES: Final = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")

_known: dict[str, tuple[int, str, str]] = {}
"""The first process of each container, the start time of this process, and its capabilities."""


def entering(container: str) -> list[str]:
    """Return the prefix of a command that runs it as root in a container.

    The engine handles a container that does not run or restarts: its message is clear.
    """
    engine = ["docker", "exec", container]
    if os.geteuid() != 0:
        return engine
    known = _known.get(container)
    if known is None or _started(known[0]) != known[1]:
        known = _look(container)
        if known is None:
            return engine
        _known[container] = known
    process, _, kept = known
    return [
        *("nsenter", f"--target={process}", *_NAMESPACES),
        # The capabilities of the container, in place of the controller's.
        *("setpriv", f"--bounding-set=-all,{kept}"),
        *("env", "--ignore-environment", f"PATH={_SEARCHED}", "HOME=/root", "container=docker"),
    ]


def capabilities(status: str) -> str:
    """Return the bounding set in /proc/PID/status as setpriv takes it."""
    line = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    mask = int(line.split()[1], 16)
    return ",".join(f"+cap_{bit}" for bit in range(mask.bit_length()) if mask >> bit & 1)


def _look(container: str) -> tuple[int, str, str] | None:
    asked = ["docker", "inspect", "--format", "{{.State.Pid}}", container]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False)
    process = int(shown.stdout) if shown.stdout.strip().isdigit() else 0
    started = _started(process)
    if not process or not started:
        return None
    try:
        return process, started, capabilities(Path(f"/proc/{process}/status").read_text())
    except OSError:
        return None


def _started(process: int) -> str:
    """Return when a process started, in the kernel's ticks; empty where there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]

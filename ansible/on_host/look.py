"""Look at the units of this host: `look.py SECONDS` prints a line of JSON.

Runs on a host (`playbooks/roll/check.yml`) and uses nothing but Python's own modules. A unit that
starts and dies again is active for moments: the enabled units have to be active in three looks, a
second apart; after SECONDS the last look counts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

OTHERS = frozenset({"haproxy.service", "nginx.service", "slapd.service", "ssh.service"})
"""Units of Debian that roles of this repository configure; all others are named hgfleet-*."""

UNNEEDED = frozenset({"hgfleet-journal-upload.service"})
"""Units that wait for another host, and without which the service goes on: no reason to go back.

Prometheus reports them. Hosts send their journals before the receiver of the same deploy is there.
"""

LOOKS = 3

_RELEASE = re.compile(r"/opt/hgfleet/releases/([^/\s]+)/")


def _systemctl(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["/usr/bin/systemctl", *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


def enabled() -> list[str]:
    """Return the units of the service that are enabled, and so have to be active."""
    lines = _systemctl("list-unit-files", "--state=enabled", "--no-legend", "--plain")
    return needed([line.split()[0] for line in lines if line.strip()])


def needed(names: list[str]) -> list[str]:
    """Return the units among these that the service needs."""
    ours = {name for name in names if name.startswith("hgfleet-") or name in OTHERS}
    return sorted(ours - UNNEEDED)


def inactive(units: list[str]) -> list[str]:
    """Return the units that are not active, each with its state."""
    if not units:
        return []
    states = _systemctl("is-active", *units)
    return [
        f"{unit} is {state}"
        for unit, state in zip(units, states, strict=False)
        if state != "active"
    ]


def releases_of(units: list[str]) -> dict[str, str]:
    """Return the release of the main process of each unit; other programs are left out."""
    by_unit = {}
    for unit in units:
        pid = "".join(_systemctl("show", "--property=MainPID", "--value", unit)).strip()
        try:
            mapped = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
        except OSError:
            continue
        release = _RELEASE.search(mapped)
        if release:
            by_unit[unit] = release[1]
    return by_unit


def look(seconds: float) -> dict[str, object]:
    """Return the problems of the host's units, its release and its processes' releases."""
    until = time.monotonic() + seconds
    units, good, problems = enabled(), 0, ["nothing was looked at"]
    while good < LOOKS and (good or time.monotonic() < until):
        problems = inactive(units)
        good = 0 if problems else good + 1
        if good < LOOKS:
            time.sleep(1)
    current = Path("/opt/hgfleet/current")
    try:
        held = json.loads(Path("/run/hgfleet-sessions/held").read_bytes())
    except (OSError, ValueError):
        held = {}
    return {
        "held": held,
        "inactive": problems,
        "release": current.readlink().name if current.is_symlink() else "",
        "running": releases_of([unit for unit in units if unit.endswith(".service")]),
    }


if __name__ == "__main__":
    print(json.dumps(look(float(sys.argv[1]))))

"""inotify instances, of which every booting host needs some: counted, raised, explained.

The limit `fs.inotify.max_user_instances` is per user (128 by default), and hosts share it with all
that root runs on this machine. A systemd that gets none ends without a word.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import bootstrap

LIMIT: Final = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH: Final = 1024
INSTANCES_OF_A_HOST: Final = 10
"""While it boots; some 6 afterwards."""


def instances(proc: Path = Path("/proc")) -> int:
    """Count the inotify instances of all processes that may be looked at, containers' included."""
    count = 0
    for link in proc.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            count += str(link.readlink()) == "anon_inode:inotify"
    return count


def ensure(hosts: int, limit_file: Path = LIMIT, proc: Path = Path("/proc")) -> None:
    """Raise the machine's limit where `hosts` more would not boot; leave it if only root may."""
    with contextlib.suppress(OSError):
        limit = int(limit_file.read_text())
        taken = instances(proc)
        if taken + hosts * INSTANCES_OF_A_HOST > limit < ENOUGH:
            limit_file.write_text(f"{ENOUGH}\n")
            bootstrap.Step.say(
                "inotify",
                f"fs.inotify.max_user_instances is {ENOUGH} now, until the machine restarts: "
                f"{taken} of {limit} were taken, and {hosts} hosts boot",
            )


def explain(host: str, taken: int, limit: int) -> None:
    """Raise SetupError where a host ended, silently, because it got no inotify instance."""
    if taken + INSTANCES_OF_A_HOST > limit:
        bootstrap.fail(
            f"{host} did not boot: {taken} of fs.inotify.max_user_instances ({limit}) are taken. "
            "systemd needs some, and containers share them with everything else that root runs.",
            f"As root: sysctl fs.inotify.max_user_instances={max(ENOUGH, 2 * limit)} (for good: in "
            "a file in /etc/sysctl.d), then run this again. Or take other clusters down.",
        )

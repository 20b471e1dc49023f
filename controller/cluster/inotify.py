"""inotify instances, of which every booting host needs some: counted, raised, explained.

The limit `fs.inotify.max_user_instances` is per user (128 by default), and root of every host
shares it with all that root runs on this machine. A systemd that gets none ends without a message.

This limit is the only setting of the machine that a command may change: the kernel counts per user
of the whole machine unless the engine maps users, and without the instances no host boots. The
cluster and the hosts of role tests together stay below the default, so the limit matters only where
other programs take many.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from controller import bootstrap

LIMIT: Final = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH: Final = 1024
INSTANCES_OF_A_HOST: Final = 7
"""Instances of root; five or six are measured, all of systemd's own process."""
ROOT_USER: Final = 0


def instances(proc: Path = Path("/proc"), user: int = ROOT_USER) -> int:
    """Count the inotify instances of a user's processes, containers' included.

    A child that systemd is about to start, "(sd-exec-strv)", has the parent's for a moment.
    """
    count = 0
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid != user or (process / "comm").read_text().startswith("("):
                continue
            for link in (process / "fd").iterdir():
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

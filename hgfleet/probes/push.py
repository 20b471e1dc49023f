"""Push to a repository for probes, as a committer pushes over SSH (I/O).

The key is a credential of the unit. The host keys come from the inventory's SSH hosts: a server
with another key is refused, and its key is not learned.
"""

from __future__ import annotations

import shlex
import shutil
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core.daemons import systemd
from hgfleet.core.errors import ConfigurationError
from hgfleet.probes import client, push_changes

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.probes.settings import Push, Settings

UNIT: Final = "hgfleet-probes.service"
KEY: Final = "probe-push-key"
"""The credential of the unit: an OpenSSH private key without a passphrase."""

FOLDER: Final = "pushed"
"""The local repository, in the folder of the history; it can be deleted."""

MARK: Final = ".hg/in-step"
"""File in it with the URL to which its last change was pushed; missing after a failure."""

FIRST: Final = ("--rev", "0")
"""The ancestor of a new host's changesets: a push without a common ancestor is refused."""

UNKNOWN: Final = ("abort: unknown branch '", "abort: unknown revision '0'")
"""Messages of hg for a repository without changesets of this host, and for an empty repository
(7.2)."""


def attempt(settings: Settings, push: Push) -> tuple[float, str]:
    """Push once; return the duration of the push in seconds and the problem, "" for a good push.

    Raises ConfigurationError without a key.
    """
    key = systemd.credential(KEY)
    if key is None or not key.exists():
        raise ConfigurationError(
            f"no key for pushes: the systemd credential {KEY} is missing. The unit has it: "
            f"`systemctl reload {UNIT}`"
        )
    begun = time.monotonic()
    place, mark = settings.state / FOLDER, settings.state / FOLDER / MARK
    ssh = ("--config", f"ui.ssh={command(push, key)}")
    try:
        problem = ""
        if _read(mark) != push.url:
            problem = _follow(settings, push, place, ssh)
        mark.unlink(missing_ok=True)
        if not problem:
            push_changes.prepare(place, push.host, time.time())
    except Exception as error:
        # Errors of Mercurial have no common class. Without the mark the next run starts from
        # scratch.
        return time.monotonic() - begun, f"{place}: {error!r:.300}"
    if problem:
        return time.monotonic() - begun, problem
    left = settings.timeout_seconds - (time.monotonic() - begun)
    begun = time.monotonic()
    problem = _push(push, place, ssh, left)
    seconds = time.monotonic() - begun
    if not problem:
        mark.write_text(push.url, "utf-8")
    return seconds, problem


def command(push: Push, key: Path) -> str:
    """Return the command line of ssh, for a shell. Pure.

    Configuration files of the account and of the system are ignored.
    """
    options = {
        "BatchMode": "yes",
        "ClearAllForwardings": "yes",
        "ConnectTimeout": "10",
        "ControlPath": "none",
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "LogLevel": "ERROR",
        "PreferredAuthentications": "publickey",
        # An ssh whose hg was killed at the timeout ends by itself.
        "ServerAliveInterval": "10",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "UserKnownHostsFile": f"{push.known_hosts}",
    }
    words = [f"{push.ssh}", "-F", "none", "-i", f"{key}"]
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    return shlex.join(words)


def _follow(settings: Settings, push: Push, place: Path, ssh: tuple[str, ...]) -> str:
    """Create the local repository again from the changesets that the server has of this host."""
    shutil.rmtree(place, ignore_errors=True)
    push_changes.create(place)
    for wanted in (("--branch", push_changes.branch_of(push.host)), FIRST):
        messages, problem = client.hg(
            "pull",
            ["--repository", place, *ssh, *wanted, "--", push.url],
            seconds=settings.timeout_seconds,
        )
        if not any(unknown in messages for unknown in UNKNOWN):
            return problem
    return ""


def _push(push: Push, place: Path, ssh: tuple[str, ...], seconds: float) -> str:
    bookmark = push_changes.bookmark_of(push.host)
    options: tuple[str | Path, ...] = (
        "--repository",
        place,
        *ssh,
        "--new-branch",
        "--bookmark",
        bookmark,
    )
    messages, problem = client.hg(
        "push",
        [*options, "--", push.url],
        seconds=max(seconds, 1.0),
        # 1: without a changeset.
        accepted=(0, 1),
    )
    if not problem and not push_changes.is_sent(messages, push.host):
        return f"the push moved no bookmark: {client.last(messages)}"
    return problem


def _read(mark: Path) -> str:
    try:
        return mark.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""

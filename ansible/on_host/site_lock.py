"""The lock of a site and its deploy log, as files of a host.

This file runs on the host (`internal/lock.yml`), with a request in base64 and JSON as its only
argument. It prints a line of JSON, and it uses nothing but Python's own modules.

| request | does |
| --- | --- |
| `take` | take the lock and log the begin, unless another run has the lock |
| `renew` | extend the lease |
| `end` | log the end, and give the lock back if this host has it |
| `show` | print the lock and the end of the log |

A lock is a lease: the run renews it for as long as it lives, so a killed controller blocks the
site for LEASE_SECONDS at most. A run of the same checkout takes the lock over at once, because a
second one would not have got past the lock of the checkout. A playbook that renews nothing (a
restore) asks for a longer lease, `seconds`, and keeps it when it breaks off: a host that is half
restored is not deployed. The same run takes it again.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path("/var/lib/hgfleet-deploy")

LEASE_SECONDS = 300.0
"""Three renewals (`lease.RENEW_SECONDS`): two may fail on a busy network."""

SHOWN_BYTES = 1 << 16
"""The end of the log that `show` prints, some 200 lines."""


def refusal(held: Mapping[str, Any] | None, asked: Mapping[str, Any], now: float) -> str:
    """Return why the run `asked` may not have the lock, empty if it may.

    A lock has `id` (the run), `checkout` (where it runs), `said` (for a person) and `expires`, in
    seconds of the epoch by the clock of this host.
    """
    if held is None or held["id"] == asked["id"]:
        return ""
    if asked["action"] == "renew":
        return f"{held['said']} has the lock now"
    # A clock that was set back makes no lease longer.
    left = min(held["expires"] - now, held.get("seconds", LEASE_SECONDS))
    if left <= 0 or held["checkout"] == asked["checkout"]:
        return ""
    return f"{held['said']} is at work; unless it renews the lock, that ends in {left:.0f} s"


def act(folder: Path, asked: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Do what a request asks and return the answer; one request at a time."""
    if asked["action"] == "show":
        return {"lock": _read(folder), "log": _end_of_log(folder / "log.jsonl"), "now": now}
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / "mutex").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        held = _read(folder)
        if asked["action"] == "end":
            _append(folder / "log.jsonl", asked["entry"])
            if held is not None and held["id"] == asked["id"]:
                (folder / "lock.json").unlink()
            return {}
        reason = refusal(held, asked, now)
        if reason:
            return {"refusal": reason}
        lock = {name: asked[name] for name in ("id", "checkout", "said")}
        seconds = float(asked.get("seconds", LEASE_SECONDS))
        _write(folder / "lock.json", {**lock, "seconds": seconds, "expires": now + seconds})
        if asked["action"] == "take":
            _append(folder / "log.jsonl", asked["entry"])
        before = held["said"] if held is not None and held["id"] != asked["id"] else ""
        return {"before": before}


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        lock = json.loads((folder / "lock.json").read_text("utf-8"))
        seconds = float(lock.get("seconds", LEASE_SECONDS))
        return {**lock, "expires": float(lock["expires"]), "seconds": seconds}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A damaged lock, after a crash of the host, is none.
        return None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.chmod(0o644)
    fresh.replace(path)


def _append(path: Path, entry: Mapping[str, Any]) -> None:
    # In one write, at the end of the file: a line is whole or missing.
    line = json.dumps(entry, separators=(",", ":")) + "\n"
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.fchmod(number, 0o644)
        os.write(number, line.encode())
        os.fsync(number)
    finally:
        os.close(number)


def _end_of_log(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - SHOWN_BYTES)
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[1:] if start else lines


if __name__ == "__main__":
    os.umask(0o022)
    request = json.loads(base64.b64decode(sys.argv[1]))
    print(json.dumps(act(FOLDER, request, time.time())))

"""The lock of a site and its deploy log, as files of a host.

This file runs on the host (`internal/lock.yml`), with a request in base64 and JSON as its only
argument. It prints a line of JSON, and it uses nothing but Python's own modules.

| request | does |
| --- | --- |
| `take` | take the lock and log the begin, unless another run has the lock |
| `renew` | extend the lease, unless this run has lost the lock |
| `end` | log the end, and give the lock back if this host has it |
| `show` | print the lock and the end of the log |
| `enter` | on a host to change: refuse a run with an older lock than another run had |
| `drain` | on a host to change: extend the drain of this run |

A lock is a lease: the run renews it for as long as it lives, so a killed controller blocks the
site for LEASE_SECONDS at most. A run of the same checkout takes the lock over at once, because a
second one would not have got past the lock of the checkout. A playbook that renews nothing, such as
a restore, asks for a longer lease, `seconds`, and keeps it when it breaks off: a host that is half
restored is not deployed. The same run takes it again.

A controller that was asleep does not know that its lease has ended. `taken` is the time at which
the host of the lock gave it, and each host keeps the latest run that changed it (`holder.json`): a
run that lost its lock is refused there, even if the host of the lock does not answer any more.
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
"""Longer than two renewals that fail and a third (`lease`), each as slow as it may be."""

DRAIN = Path("/etc/hgfleet/web.drain")
HOLDER = "holder.json"

SHOWN_BYTES = 1 << 16
"""The end of the log that `show` prints, some 200 lines."""


def refusal(held: Mapping[str, Any] | None, asked: Mapping[str, Any], now: float) -> str:
    """Return why the run `asked` may not have the lock, empty if it may.

    A lock has `id` (the run), `checkout` (where it runs), `said` (for a person), `taken` and
    `expires`, in seconds of the epoch by the clock of this host.
    """
    if held is not None and held["id"] == asked["id"]:
        return ""
    if asked["action"] == "renew":
        # Another run may have had it, and given it back.
        return f"{held['said']} has the lock now" if held else "the lock was lost"
    if held is None:
        return ""
    # A clock that was set back makes no lease longer.
    left = min(held["expires"] - now, held.get("seconds", LEASE_SECONDS))
    if left <= 0 or held["checkout"] == asked["checkout"]:
        return ""
    return f"{held['said']} is at work; unless it renews the lock, that ends in {left:.0f} s"


def act(folder: Path, asked: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Carry out a request and return the answer; no two requests at a time."""
    if asked["action"] == "show":
        return {"lock": _read(folder), "log": _end_of_log(folder / "log.jsonl"), "now": now}
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / "mutex").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if asked["action"] == "enter":
            return _enter(folder / HOLDER, asked)
        if asked["action"] == "drain":
            return _extend_drain(folder / HOLDER, Path(asked.get("file", DRAIN)), asked, now)
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
        taken = now
        if held is not None:
            # Later than the lock of the run before, also after the clock was set back.
            is_own = held["id"] == asked["id"]
            taken = held["taken"] if is_own else max(now, held["taken"] + 0.001)
        lock |= {"taken": taken, "seconds": seconds, "expires": now + seconds}
        _write(folder / "lock.json", lock)
        if asked["action"] == "take":
            _append(folder / "log.jsonl", asked["entry"])
        before = held["said"] if held is not None and held["id"] != asked["id"] else ""
        return {"before": before, "taken": taken}


def _enter(path: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let a run change this host, unless a run that took the lock later was here."""
    holder = _read_json(path)
    if holder and holder["id"] != asked["id"] and float(holder["taken"]) > float(asked["taken"]):
        return {"refusal": f"{holder['said']} took the lock of the site later, and was here"}
    _write(path, {name: asked[name] for name in ("id", "said", "taken")})
    return {}


def _extend_drain(
    holder: Path, drain: Path, asked: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Extend a drain with an end, if the run that asks was the last one here."""
    known = _read_json(holder)
    if not known or known["id"] != asked["id"]:
        return {"refusal": "another run was here"}
    try:
        if not drain.read_text("utf-8", "replace").startswith("until="):
            return {"until": None}
    except FileNotFoundError:
        return {"until": None}
    until = int(now + float(asked["seconds"]))
    fresh = drain.with_name(f"{drain.name}.new")
    fresh.write_text(f"until={until}\n")
    fresh.chmod(0o644)
    fresh.replace(drain)
    return {"until": until}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
        return data if isinstance(data, dict) and {"id", "said", "taken"} <= set(data) else {}
    except (OSError, ValueError):
        return {}


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        lock = json.loads((folder / "lock.json").read_text("utf-8"))
        expires, seconds = float(lock["expires"]), float(lock.get("seconds", LEASE_SECONDS))
        # A release from before there was a time gave the lock at the last renewal, or before it.
        taken = float(lock.get("taken", expires - seconds))
        return {**lock, "expires": expires, "seconds": seconds, "taken": taken}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A damaged lock, after a crash of the host, does not count.
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
    # In a single write, at the end of the file: a line is whole or missing.
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
    print(json.dumps(act(Path(request.get("folder", FOLDER)), request, time.time())))

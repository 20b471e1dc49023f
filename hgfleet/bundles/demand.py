"""What clones and pulls cost this server lately, from the access log of the web part.

Each request for changesets (`getbundle`) that reaches the server is one that no bundle answered.
The log has a JSON object a line; lines that are something else are skipped, since clients decide
over part of their content.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

WINDOW: Final = timedelta(days=1)

MAX_READ: Final = 256 * 1024 * 1024
"""Bytes of the log, from its end, that a run reads at most: two seconds."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one repository was asked for: `seconds` are those the server took to answer."""

    clones: int = 0
    pulls: int = 0
    seconds: float = 0.0


def collect(lines: Iterable[str], since: datetime) -> Mapping[str, Demand]:
    """Add up, by repository, the requests for changesets from `since` on. Pure."""
    clones: dict[str, int] = defaultdict(int)
    pulls: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for line in lines:
        # Nine of ten lines are something else, and parsing is what takes the time.
        if '"getbundle"' not in line:
            continue
        try:
            entry = json.loads(line)
            if entry["command"] != "getbundle" or not entry["changesets"]:
                continue
            if datetime.fromisoformat(entry["time"]) < since:
                continue
            repository, took = str(entry["repository"]), float(entry["duration"])
            # Time in the queue of clones costs nobody anything.
            took -= float(entry.get("waited", 0))
            full = bool(entry["full"])
        except (ValueError, KeyError, TypeError):
            continue
        (clones if full else pulls)[repository] += 1
        seconds[repository] += max(0.0, took)
    return {path: Demand(clones[path], pulls[path], seconds[path]) for path in seconds}


def read(log: Path | None, now: datetime) -> Mapping[str, Demand]:
    """Read the log; nothing if there is none here, or none that may be read.

    Of a log that was rotated within the last day, only what came later is seen: a repository in
    demand is noticed some hours later.
    """
    if log is None:
        return {}
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_READ))
            return collect((line.decode("utf-8", "replace") for line in file), now - WINDOW)
    except OSError:
        return {}

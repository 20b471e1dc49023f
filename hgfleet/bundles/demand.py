"""What clones and pulls cost this server lately, from the logs of the web part and of SSH sessions.

Each request for changesets (`getbundle`) that reaches the server is one that no bundle answered.
The web part logs all its requests, sessions those (hgext/getbundlelog.py), both as a JSON object a
line; lines that are something else are skipped, since clients decide over part of their content.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import json
import zlib
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

WINDOW: Final = timedelta(days=1)

MAX_READ: Final = 256 * 1024 * 1024
"""Bytes of a log, from its end, that a run reads at most: two seconds."""

MAX_LINE: Final = 65536
"""Bytes of a line; the longest that the web part writes have a URL of 8 KiB."""


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


def read(logs: Iterable[Path], now: datetime) -> Mapping[str, Demand]:
    """Read the last day of logs, rotated parts included; what may not be read is nothing."""
    return collect(_lines(logs, now - WINDOW), now - WINDOW)


def _lines(logs: Iterable[Path], since: datetime) -> Iterator[str]:
    for log in logs:
        left = MAX_READ
        for file in current(log, since):
            with contextlib.suppress(OSError, EOFError, zlib.error):
                for line in _tail(file, left):
                    left -= len(line)
                    yield line.decode("utf-8", "replace")
            if left <= 0:
                break


def current(log: Path, since: datetime) -> list[Path]:
    """Return a log and those of its rotated parts that were written to since then, newest first.

    logrotate appends the time to the name, and compresses a file when it is no longer the newest of
    them (`ansible/roles/web/templates/logrotate.j2`).
    """
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for file in log.parent.glob(f"{glob.escape(log.name)}-*"):
            modified = file.stat().st_mtime
            if modified >= since.timestamp():
                found.append((modified, file))
    return [log, *(file for _, file in sorted(found, reverse=True))]


def _tail(file: Path, most: int) -> Iterator[bytes]:
    """The lines in the last `most` bytes of a file; of a compressed one, in the first."""
    if file.suffix == ".gz":
        with gzip.open(file) as unpacked:
            # A line without end is read in parts, and makes no sense in any of them.
            while most > 0 and (line := unpacked.readline(MAX_LINE)):
                most -= len(line)
                yield line
        return
    with file.open("rb") as plain:
        plain.seek(max(0, plain.seek(0, 2) - most))
        while line := plain.readline(MAX_LINE):
            yield line

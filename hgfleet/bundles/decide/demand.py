"""Demand: the cost of clones and pulls without a bundle, from the logs of web and SSH.

A request for changesets (`getbundle`) that reaches the server was not answered by a clone bundle.
The access log of the web part has all requests, the getbundle log (hgext/getbundlelog.py) the
requests over SSH, both as a JSON object on each line. Other lines are skipped, since clients choose
part of them.
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
"""The most bytes that a run reads from the end of a log; they take two seconds."""

MAX_LINE: Final = 65536
"""The most bytes of a line; the longest lines of the web part have a URL of 8 KiB."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand for a repository; `seconds` is the time of the server."""

    clones: int = 0
    pulls: int = 0
    seconds: float = 0.0
    bytes: int = 0
    """Sent to clients."""


def collect(lines: Iterable[str], since: datetime) -> Mapping[str, Demand]:
    """Add up, by repository, the requests for changesets from `since` on. Pure."""
    clones: dict[str, int] = defaultdict(int)
    pulls: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    sizes: dict[str, int] = defaultdict(int)
    for line in lines:
        # Nine of ten lines are other requests, and parsing takes most of the time.
        if '"getbundle"' not in line:
            continue
        try:
            entry = json.loads(line)
            if entry["command"] != "getbundle" or not entry["changesets"]:
                continue
            if datetime.fromisoformat(entry["time"]) < since:
                continue
            repository, took = str(entry["repository"]), float(entry["duration"])
            # Time in the queue of clones costs the server nothing.
            took -= float(entry.get("waited", 0))
            full = bool(entry["full"])
            size = int(entry.get("bytes", 0))
        except (ValueError, KeyError, TypeError):
            continue
        (clones if full else pulls)[repository] += 1
        seconds[repository] += max(0.0, took)
        sizes[repository] += max(0, size)
    return {path: Demand(clones[path], pulls[path], seconds[path], sizes[path]) for path in seconds}


def read(logs: Iterable[Path], now: datetime) -> Mapping[str, Demand]:
    """Read the last day of logs, rotated parts included; unreadable logs count as empty."""
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
    """Return a log and its rotated parts that were written to since then, newest first.

    logrotate appends the time to the name, and compresses a file when it is no longer the newest of
    them (`ansible/roles/web/templates/logrotate.j2`).
    """
    rotated: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for file in log.parent.glob(f"{glob.escape(log.name)}-*"):
            modified = file.stat().st_mtime
            if modified >= since.timestamp():
                rotated.append((modified, file))
    return [log, *(file for _, file in sorted(rotated, reverse=True))]


def _tail(file: Path, most: int) -> Iterator[bytes]:
    """Yield the lines in the last `most` bytes of a file; in the first, if it is compressed."""
    if file.suffix == ".gz":
        with gzip.open(file) as unpacked:
            # An endless line is read in parts, and no part is a JSON object.
            while most > 0 and (line := unpacked.readline(MAX_LINE)):
                most -= len(line)
                yield line
        return
    with file.open("rb") as plain:
        plain.seek(max(0, plain.seek(0, 2) - most))
        while line := plain.readline(MAX_LINE):
            yield line

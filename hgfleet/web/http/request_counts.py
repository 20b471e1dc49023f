"""Counts of requests by kind, status and time, of the cache, and of clones, for metrics.

A worker answers thousands of requests a second, so it adds to its own numbers, and these go to the
file of all workers every few seconds. A worker that is killed takes the last seconds with it. Kinds
and reasons are words of this module: no word of a client gets into a count.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Final

from hgfleet.core import counters
from hgfleet.hg import clone_counts, wire_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FILE: Final = "requests"
"""Of the counts, in the folder of `Settings.counters`."""

FLUSH_S: Final = 5.0
"""How late counts are in the file (seconds)."""

HEALTH: Final = "healthz"
"""The command of a health check, which is no client's request."""

KINDS: Final = ("changesets", "manifest", "wire", "page", "archive", "api", "other")
STATUSES: Final = ("2xx", "3xx", "4xx", "5xx")
CACHE: Final = ("hit", "miss")
REFUSALS: Final = (
    "archive",
    "busy",
    "identity",
    "limit",
    "parked",
    "push",
    "share",
    "signin",
    "throttled",
    "unavailable",
)
"""The first words of the field `refused` of the access log."""

BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0)
"""Upper bounds of the histograms, in seconds, from the arrival at a worker to the last byte."""


def kind_of(command: object) -> str:
    """Return the kind of a request by its command in the access log; None stands for no command.

    A page has the command that its address names, so any other word is a page.
    """
    if not isinstance(command, str):
        return "other"
    if command in ("getbundle", "stream_out"):
        return "changesets"
    if command in wire_commands.STREAMING:
        return "manifest"
    if command in wire_commands.OPEN:
        return "wire"
    if command == "archive":
        return "archive"
    if command == "api" or command.startswith("json"):
        return "api"
    return "page"


def counts(entry: Mapping[str, object], status: int, size: int, seconds: float) -> dict[str, float]:
    """Return what a request adds to the counts, by its line of the access log. Pure.

    `size` is the size of the body in bytes.
    """
    command = entry.get("command")
    if command == HEALTH:
        return {}
    kind = kind_of(command)
    amounts = {f"{kind} {status // 100}xx": 1.0, f"{kind} bytes": float(size)}
    amounts.update(counters.at_most(seconds, BUCKETS, f"{kind} "))
    if entry.get("cache") in CACHE:
        amounts[f"cache {entry['cache']}"] = 1.0
    if "refused" in entry:
        amounts[f"refused {str(entry['refused']).partition(' ')[0]}"] = 1.0
    amounts.update(clone_counts.counts(entry.get("answer"), entry.get("source"), size))
    return amounts


class Requests:
    """Requests that were answered, of every kind, 0 included."""

    def __init__(self, data: Mapping[str, float]) -> None:
        self.counts = {
            (kind, status): float(data.get(f"{kind} {status}", 0))
            for kind in KINDS
            for status in STATUSES
        }
        self.times = {
            kind: (
                counters.buckets(data, BUCKETS, f"{kind} "),
                sum(self.counts[kind, status] for status in STATUSES),
                float(data.get(f"{kind} seconds", 0)),
            )
            for kind in KINDS
        }
        """Of each kind: the buckets, the count and the sum."""
        self.bytes = {kind: float(data.get(f"{kind} bytes", 0)) for kind in KINDS}
        self.cache = {result: float(data.get(f"cache {result}", 0)) for result in CACHE}
        self.refused = {reason: float(data.get(f"refused {reason}", 0)) for reason in REFUSALS}


class Counting:
    """The counts of a process on their way to the file. Safe in threads."""

    def __init__(self, folder: Path | None, complain: Callable[[str], object]) -> None:
        """Count into the file of a folder; None counts nothing. `complain` is told of losses."""
        self._folder = folder
        self._complain = complain
        self._lock = threading.Lock()
        self._amounts: dict[str, float] = {}
        self._timer: threading.Timer | None = None
        # Renderers are forked from the worker, and its counts are not theirs.
        self._process = os.getpid()
        if folder is not None:
            atexit.register(self.flush)

    def add(self, amounts: Mapping[str, float]) -> None:
        """Add amounts; they are in the file some seconds later."""
        if self._folder is None or not amounts:
            return
        with self._lock:
            for name, amount in amounts.items():
                self._amounts[name] = self._amounts.get(name, 0.0) + amount
            if self._timer is None:
                self._timer = threading.Timer(FLUSH_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Add what was counted since to the file."""
        if self._folder is None or os.getpid() != self._process:
            return
        with self._lock:
            amounts, self._amounts, self._timer = self._amounts, {}, None
        if not amounts:
            return
        problem = counters.try_add(str(self._folder), FILE, amounts)
        if problem is not None:
            self._complain(f"requests of {FLUSH_S:g} s are not counted: {problem}")

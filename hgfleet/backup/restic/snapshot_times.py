"""Times of snapshots and locks, and how far the host that prunes believes them. Pure.

The host that makes a backup writes its time, so an attacker on a host chooses any time. restic
keeps the newest snapshots of a number of hours, days and months, without regard to any clock, so
snapshots with chosen times displace genuine snapshots. The host that prunes believes only its own
clock and records:

- A snapshot or a lock that is later than the clock of the host that prunes is not genuine.
- A snapshot that is new since the last prune, and dated before it, is backdated.
- The newest snapshot of each hour, day and month of the retention, counted from the clock, stays,
  also where restic would remove it. (restic counts hours in the zone of each snapshot, so snapshots
  of the same minute, in different zones, count as many hours.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.stored_time import is_future

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hgfleet.backup.restic.settings import Retention

CLOCK_TOLERANCE_SECONDS: Final = 600.0
"""How far the clock of a host may be ahead of the clock of the host that reads its backups."""

BACKDATED_TOLERANCE_SECONDS: Final = 3600.0
"""How long before a prune a backup may have begun that ends after it: restic notes the time before
it waits up to 10 minutes for the pruner, and clocks differ."""

_HOUR: Final = 3600.0
_DAY: Final = 86_400.0

Raw = dict[str, Any]
"""A snapshot as restic describes it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Snapshots of a host with the same tags: which restic would keep, and which remove."""

    keep: tuple[Raw, ...]
    remove: tuple[Raw, ...]


def seconds(text: str) -> float:
    """Read a time as restic writes it, in seconds since 1970; NaN for a text that is no time.

    `stored_time` takes NaN for the future. Python has no year 0, but no genuine backup has it.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return float("nan")


def latest(snapshot: Mapping[str, Any]) -> float:
    """Return the latest time in a snapshot; NaN if any of its times is invalid."""
    summary = snapshot.get("summary") or {}
    texts = [snapshot["time"]]
    texts += [summary[name] for name in ("backup_start", "backup_end") if summary.get(name)]
    times = [seconds(text) for text in texts]
    return max(times) if all(map(math.isfinite, times)) else float("nan")


def is_from_future(when: float, now: float) -> bool:
    """Whether a snapshot or lock is later than the clock of the host that reads it."""
    return is_future(when, now, CLOCK_TOLERANCE_SECONDS)


def from_future(snapshots: Iterable[Raw], now: float) -> list[Raw]:
    """Return the snapshots that are later than the clock."""
    return [snapshot for snapshot in snapshots if is_from_future(latest(snapshot), now)]


def backdated(snapshots: Iterable[Raw], known: Collection[str], looked: float) -> list[Raw]:
    """Return the snapshots that came after the last look, and are dated before it.

    `known` are the ids of all snapshots at that look; a time of 0 means no look yet.
    """
    if not looked:
        return []
    before = looked - BACKDATED_TOLERANCE_SECONDS
    return [
        snapshot
        for snapshot in snapshots
        if snapshot["id"] not in known and seconds(snapshot["time"]) < before
    ]


def needed(groups: Iterable[Group], retention: Retention, now: float) -> list[Raw]:
    """Return the snapshots that restic would remove, but the retention needs by the clock.

    restic removes a snapshot of the last hours if it keeps a later snapshot of the same hour, and
    likewise for days and months. One more hour is allowed, because an hour comes twice when a zone
    changes.
    """
    spans = (
        ((retention.hours - 1) * _HOUR, _HOUR),
        # One day of the year has 23 hours.
        ((retention.days - 1) * _DAY - _HOUR, _DAY),
        ((retention.months - 1) * 28 * _DAY, 31 * _DAY),
    )
    removed = []
    for group in groups:
        kept = [seconds(snapshot["time"]) for snapshot in group.keep]
        for snapshot in group.remove:
            when = seconds(snapshot["time"])
            if any(
                now - when < window
                and not any(when <= other <= when + longest + _HOUR for other in kept)
                for window, longest in spans
            ):
                removed.append(snapshot)
    return removed


def named(snapshots: Collection[Raw], most: int = 5) -> str:
    """Return some snapshots for a message, with their ids and times."""
    texts = [f"{snapshot['id'][:8]} of {str(snapshot['time'])[:19]}" for snapshot in snapshots]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")

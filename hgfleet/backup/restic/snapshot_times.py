"""Times of snapshots and locks, and how far the host that prunes believes them. Pure.

The host that makes a backup writes its time, so a host that was taken over adds any. restic keeps
the newest snapshots of a number of hours, days and months, and looks at no clock, so snapshots with
chosen times push out genuine ones. The host that prunes believes its own clock and memory:

- A snapshot or a lock that is later than the clock of the host that prunes is not genuine.
- A snapshot that is new since the last look, and dated before it, was dated back.
- The newest snapshot of each hour, day and month of the retention, counted from the clock, stays,
  also where restic would remove it. (restic counts hours in the zone of each snapshot, so snapshots
  of one minute, with different zones, count as many hours.)
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
"""How far the clock of a host may be ahead of the clock of the host that looks at its backups."""

BACKDATED_TOLERANCE_SECONDS: Final = 3600.0
"""How long before a look a backup may have begun that ends after it: restic takes its time before
it waits up to 10 minutes for the pruner, and clocks differ."""

_HOUR: Final = 3600.0
_DAY: Final = 86_400.0

Raw = dict[str, Any]
"""A snapshot as restic describes it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Snapshots of one host with the same tags: those that restic would keep, and remove."""

    keep: tuple[Raw, ...]
    remove: tuple[Raw, ...]


def seconds(text: str) -> float:
    """Read a time as restic writes it, in seconds since 1970; NaN for a text that is no time.

    NaN is in the future for `stored_time`. Python has no year 0, nor has a genuine backup.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return float("nan")


def latest(snapshot: Mapping[str, Any]) -> float:
    """Return the latest time that a snapshot tells of itself; NaN where one of them is none."""
    summary = snapshot.get("summary") or {}
    texts = [snapshot["time"]]
    texts += [summary[name] for name in ("backup_start", "backup_end") if summary.get(name)]
    times = [seconds(text) for text in texts]
    return max(times) if all(map(math.isfinite, times)) else float("nan")


def is_from_future(when: float, now: float) -> bool:
    """Whether a snapshot or lock is later than the clock of the host that looks."""
    return is_future(when, now, CLOCK_TOLERANCE_SECONDS)


def from_future(snapshots: Iterable[Raw], now: float) -> list[Raw]:
    """Return the snapshots that are later than the clock."""
    return [one for one in snapshots if is_from_future(latest(one), now)]


def backdated(snapshots: Iterable[Raw], known: Collection[str], looked: float) -> list[Raw]:
    """Return the snapshots that the look at that time did not see and that are dated before it.

    `known` are the ids of all snapshots of that look; 0 is no look.
    """
    if not looked:
        return []
    before = looked - BACKDATED_TOLERANCE_SECONDS
    return [one for one in snapshots if one["id"] not in known and seconds(one["time"]) < before]


def needed(groups: Iterable[Group], retention: Retention, now: float) -> list[Raw]:
    """Return the snapshots that restic would remove and that the retention needs, by the clock.

    restic removes a snapshot of the last hours for a later one of its hour, and likewise for days
    and months. An hour more is allowed, for the hour that comes twice when a zone changes.
    """
    spans = (
        ((retention.hours - 1) * _HOUR, _HOUR),
        # One day of the year has 23 hours.
        ((retention.days - 1) * _DAY - _HOUR, _DAY),
        ((retention.months - 1) * 28 * _DAY, 31 * _DAY),
    )
    found = []
    for group in groups:
        kept = [seconds(one["time"]) for one in group.keep]
        for one in group.remove:
            when = seconds(one["time"])
            if any(
                now - when < window
                and not any(when <= other <= when + longest + _HOUR for other in kept)
                for window, longest in spans
            ):
                found.append(one)
    return found


def named(snapshots: Collection[Raw], most: int = 5) -> str:
    """Return some snapshots for a message, with their ids and times."""
    texts = [f"{one['id'][:8]} of {str(one['time'])[:19]}" for one in snapshots]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")

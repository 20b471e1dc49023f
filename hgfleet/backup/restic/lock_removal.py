"""Which locks of restic are of backups that have ended. Pure.

The account of the hosts cannot delete in a bucket, so a backup leaves its locks: one from its
begin, and one more for each 5 minutes that it took. restic refuses to prune beside any of them.
Over SSH a backup removes its locks, unless it is killed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup.restic.snapshot_times import is_from_future, latest, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STALE: Final = timedelta(minutes=30)
"""Age from which restic itself takes a lock for one of a dead process; a backup that cannot renew
its lock ends itself before (22 minutes)."""


def moment(text: str) -> datetime:
    """Read a time as restic writes it, with nanoseconds and a zone."""
    return datetime.fromisoformat(text)


def running(
    locks: Iterable[Mapping[str, Any]], snapshots: Iterable[Mapping[str, Any]], now: datetime
) -> list[str]:
    """Return the times of the locks whose backup may still run, given all snapshots of the host.

    A host has one run at a time. So a lock from before the end of a backup is of that backup, or of
    one before it. A snapshot from the future ends no backup: it would hide every lock. A lock from
    the future is of none, or of a host whose clock is wrong; see `wrong`.
    """
    past = (one for one in snapshots if not is_from_future(latest(one), now.timestamp()))
    ended = max((_end(one) for one in past), default=None)
    return sorted(
        str(lock["time"])
        for lock in locks
        if not is_from_future(seconds(lock["time"]), now.timestamp())
        if (taken := moment(lock["time"])) + STALE > now and (ended is None or taken > ended)
    )


def wrong(locks: Iterable[Mapping[str, Any]], now: datetime) -> list[str]:
    """Return the times of the locks that are later than the clock.

    Such a lock would count as fresh for ever, so it neither delays a prune nor is it taken for left
    over: the prune of its host is refused.
    """
    times = (str(lock["time"]) for lock in locks)
    return sorted(one for one in times if is_from_future(seconds(one), now.timestamp()))


def _end(snapshot: Mapping[str, Any]) -> datetime:
    summary = snapshot.get("summary") or {}
    return moment(summary.get("backup_end") or snapshot["time"])

"""Which locks of restic belong to backups that have ended. Pure.

The account of the hosts cannot delete in a bucket, so a backup leaves its locks: the first from its
start, and another for every 5 minutes that it took. restic refuses to prune while any lock is left.
Over SSH a backup removes its locks, unless it is killed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup.restic.snapshot_times import is_from_future, latest, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STALE: Final = timedelta(minutes=30)
"""Age from which restic itself takes the owner of a lock for dead. A backup that cannot renew its
lock ends before that (22 minutes)."""


def moment(text: str) -> datetime:
    """Read a time as restic writes it, with nanoseconds and a zone."""
    return datetime.fromisoformat(text)


def running(
    locks: Iterable[Mapping[str, Any]], snapshots: Iterable[Mapping[str, Any]], now: datetime
) -> list[str]:
    """Return the times of the locks whose backup may still run, given all snapshots of the host.

    A host has one run at a time. So a lock from before the end of a backup belongs to that backup
    or to an earlier backup. A snapshot from the future ends no backup: it would hide every lock. A
    lock from the future belongs to no backup, or to a host whose clock is wrong; see `wrong`.
    """
    past = (shot for shot in snapshots if not is_from_future(latest(shot), now.timestamp()))
    ended = max(map(_end, past), default=None)
    return sorted(
        str(lock["time"])
        for lock in locks
        if not is_from_future(seconds(lock["time"]), now.timestamp())
        if (taken := moment(lock["time"])) + STALE > now and (ended is None or taken > ended)
    )


def wrong(locks: Iterable[Mapping[str, Any]], now: datetime) -> list[str]:
    """Return the times of the locks that are later than the clock.

    Such a lock would count as fresh for ever. So it does not delay the prune of its host, and it
    does not count as left over: the prune is refused.
    """
    times = (str(lock["time"]) for lock in locks)
    return sorted(taken for taken in times if is_from_future(seconds(taken), now.timestamp()))


def _end(snapshot: Mapping[str, Any]) -> datetime:
    summary = snapshot.get("summary") or {}
    return moment(summary.get("backup_end") or snapshot["time"])

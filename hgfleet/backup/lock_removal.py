"""Which locks of restic are of backups that have ended. Pure.

The account of the hosts cannot delete in a bucket, so a backup leaves its locks: one from its
begin, and one more for each 5 minutes that it took. restic refuses to prune beside any of them.
Over SSH a backup removes its locks, unless it is killed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

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
    one before it.
    """
    ended = max((_end(one) for one in snapshots), default=None)
    return sorted(
        str(lock["time"])
        for lock in locks
        if (taken := moment(lock["time"])) + STALE > now and (ended is None or taken > ended)
    )


def _end(snapshot: Mapping[str, Any]) -> datetime:
    summary = snapshot.get("summary") or {}
    return moment(summary.get("backup_end") or snapshot["time"])

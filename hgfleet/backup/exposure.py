"""Exposure of each repository: the pushes that would be lost if a host, site or bucket died. Pure.

Only a backup that a recent drill has restored counts: a later backup may fail to restore. A mirror
counts if it has every push of this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import stored_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Exposure:
    """Exposure of a repository. `host` and `site` are pushes that would be lost; None is all."""

    path: str
    pushes: int
    host: int | None
    site: int | None
    reason: str
    """Why the last backup does not count; empty if it does."""
    undrilled: int = 0
    """Pushes of `site` that are in the last backup, but that no drill has restored."""


def of(
    path: str,
    pushes: int,
    backup: Mapping[str, Any] | None,
    drill: Mapping[str, Any] | None,
    *,
    mirrors: int,
    now: float,
    drill_days: int,
    has_record: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> Exposure:
    """Return the exposure of a repository with so many pushes.

    `has_record` says whether its push log has the record that a drill restored up to.
    """
    drill = drill_of(backup, drill)
    reason = _reason(backup, drill, now, drill_days)
    if drill and "push_hash" in drill and not has_record(drill):
        # The numbers of pushes are compared below, and another log has other pushes under them.
        reason, drill = "its push log does not have the push that its last drill restored", None
    site, undrilled = None, 0
    if drill and backup and (not reason or "error" in drill) and "push_id" in drill:
        # A drill that failed names the last push of the older backup that it could restore.
        site = max(0, pushes - int(drill["push_id"]))
    if site is not None and not reason and backup is not None:
        undrilled = min(site, max(0, int(backup.get("push_id", 0)) - (pushes - site)))
    return Exposure(path, pushes, 0 if mirrors else site, site, reason, undrilled)


def drill_of(
    backup: Mapping[str, Any] | None, drill: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the drill of a path if it restored the repository that is in the backup."""
    if drill and backup and drill.get("identity", "") not in ("", backup.get("identity", "")):
        return None
    return drill


def _reason(
    backup: Mapping[str, Any] | None, drill: Mapping[str, Any] | None, now: float, drill_days: int
) -> str:
    if not backup:
        return "no backup"
    if not drill:
        return "no backup of it was restored yet"
    if error := drill.get("error"):
        return f"its newest backup cannot be restored: {error}"
    age = stored_time.age(float(drill.get("time", 0)), now)
    if age == float("inf"):
        return "its last drill is later than the clock of this host, and counts as none"
    if age > drill_days * DAY_SECONDS:
        return f"its last drill was {age / DAY_SECONDS:.0f} days ago"
    if "push_id" not in drill:
        return "its last drill does not say up to which push it restored"
    return ""


def complete_mirrors(state: Mapping[str, Any]) -> list[str]:
    """Return the hosts that have every push of this host, by the state file of replication."""
    if state.get("role") == "mirror":
        # A mirror that has caught up may still be behind for a moment, or with parked repositories.
        is_behind = any(state.get(name) for name in ("behind", "waiting", "parked_repositories"))
        return ["the primary"] if state.get("caught_up") is True and not is_behind else []
    if state.get("waiting"):
        return []
    mirrors = state.get("mirrors")
    return sorted(
        name
        for name, mirror in (mirrors if isinstance(mirrors, dict) else {}).items()
        if mirror.get("live") and mirror.get("caught_up")
        if not mirror.get("waiting") and not mirror.get("parked")
    )


def sentence(pushes: int | None) -> str:
    """Return a number of pushes for a table."""
    return "all" if pushes is None else str(pushes)

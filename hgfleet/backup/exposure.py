"""Exposure of each repository: the pushes that would be lost if a host, site or bucket died. Pure.

A backup counts once a drill has restored one of its repository, and for as long as that drill is
recent. A mirror counts if it has every push of this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Exposure:
    """One repository. `host` and `site` are pushes that would be lost; None is all of them."""

    path: str
    pushes: int
    host: int | None
    site: int | None
    reason: str
    """Why no backup counts; empty if one does."""


def of(
    path: str,
    pushes: int,
    backup: Mapping[str, Any] | None,
    drill: Mapping[str, Any] | None,
    *,
    mirrors: int,
    now: float,
    drill_days: int,
) -> Exposure:
    """Return what a repository with so many pushes would lose."""
    reason = _reason(backup, drill_of(backup, drill), now, drill_days)
    site = None
    if not reason and backup is not None:
        site = max(0, pushes - int(backup.get("push_id", 0)))
    return Exposure(path, pushes, 0 if mirrors else site, site, reason)


def drill_of(
    backup: Mapping[str, Any] | None, drill: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the drill at a path if it is of the repository of the backup there."""
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
        return f"its backup cannot be restored: {error}"
    days = (now - float(drill.get("time", 0))) / DAY_SECONDS
    if days > drill_days:
        return f"its last drill was {days:.0f} days ago"
    return ""


def complete_mirrors(state: Mapping[str, Any]) -> list[str]:
    """Return the hosts that have every push of this host, by the state file of replication."""
    if state.get("role") == "mirror":
        # A mirror that has caught up may be behind for a moment, and with parked repositories.
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


def sentence(found: int | None) -> str:
    """Return a number of pushes for a table."""
    return "all" if found is None else str(found)

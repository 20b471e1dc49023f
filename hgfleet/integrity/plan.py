"""Plan of one night: which repositories are verified, so that each has its turn. Pure.

A night verifies at least its share of all bytes, those first that were verified longest ago. So
every repository has its turn within as many nights as the schedule has days, however many there
are. A repository whose days end before the next night comes as well, and so does a corrupt one,
until it is repaired.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hgfleet.core import stored_time

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_SECONDS: Final = 86_400

LEAST_BYTES: Final = 1_000_000
"""The cost of verifying a small repository beside its bytes: the start of Mercurial."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The last verification of a repository. Times are seconds since 1970."""

    seen: float
    """When the repository was there for the first time."""
    time: float = 0.0
    """End of the last verification that came to a result; 0 before the first one."""
    seconds: float = 0.0
    size: int = 0
    """Bytes of its store, when it was last measured."""
    error: str = ""
    """The corruption found, empty if there is none."""
    identity: str = ""
    """Of the repository; empty in a result of a release before."""

    def since(self, now: float) -> float:
        """The time that its days are counted from; 0 where all it has is from the future."""
        return stored_time.past(self.time, now) or stored_time.past(self.seen, now)


def carried(known: Mapping[str, Checked], identities: Mapping[str, str]) -> dict[str, Checked]:
    """Return the results of the repositories that are there, given their identities by path.

    A result is of a repository and goes with it to another path. One of a release before is taken
    for that of the repository at its path.
    """
    by_identity = {one.identity: one for one in known.values() if one.identity}
    found = {}
    for path, identity in identities.items():
        at_path = known.get(path)
        if identity and identity in by_identity:
            found[path] = by_identity[identity]
        elif at_path is not None and not at_path.identity:
            found[path] = replace(at_path, identity=identity)
    return found


def tonight(known: Mapping[str, Checked], *, days: int, now: float) -> list[str]:
    """Choose the repositories of one night, in the order of their verification."""
    costs = {path: one.size + LEAST_BYTES for path, one in known.items()}
    share = sum(costs.values()) / days
    taken = 0
    chosen = []
    for path in sorted(costs, key=lambda one: (stored_time.past(known[one].time, now), one)):
        found = known[path]
        if taken < share or found.error or is_due(found, days, now):
            chosen.append(path)
            taken += costs[path]
    return chosen


def is_due(found: Checked, days: int, now: float) -> bool:
    """Whether the days of a repository end before the next night."""
    return now + DAY_SECONDS > found.since(now) + days * DAY_SECONDS


def overdue(known: Mapping[str, Checked], *, days: int, now: float) -> list[str]:
    """Return the repositories that were not verified within the days, the longest first.

    A night begins at a random time of some hours, so a day more is allowed.
    """
    late = [path for path, one in known.items() if now - one.since(now) > (days + 1) * DAY_SECONDS]
    return sorted(late, key=lambda path: (known[path].since(now), path))


def corrupt(known: Mapping[str, Checked]) -> dict[str, str]:
    """Return the corrupt repositories, each with its corruption."""
    return {path: one.error for path, one in sorted(known.items()) if one.error}


def sentences(
    known: Mapping[str, Checked], ended: float | None, *, days: int, now: float
) -> list[str]:
    """Return the state of a host for people, corrupt repositories first."""
    found = [
        f"{path}: CORRUPT at {_when(known[path].time)}: {text}; to repair it: "
        f"hgfleet integrity repair {path}"
        for path, text in corrupt(known).items()
    ]
    found += [
        f"{path}: not verified for {_days(known[path].since(now), now)}"
        for path in overdue(known, days=days, now=now)
    ]
    verified = [one for one in known.values() if one.time]
    found.append(
        f"{len(verified)} of {len(known)} repositories were verified, each has its turn within "
        f"{days} days; last run: {_when(ended) if ended else 'never'}"
    )
    if verified:
        found.append(f"oldest result: {_when(min(one.time for one in verified))}")
    return found


def _days(since: float, now: float) -> str:
    if not since:
        return "a known time: its last verification is later than the clock of this host"
    return f"{(now - since) / DAY_SECONDS:.0f} days"


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))

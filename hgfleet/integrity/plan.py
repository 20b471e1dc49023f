"""Plan of a night: which repositories are verified, so that each is verified in time. Pure.

A night verifies at least its share of all bytes, beginning with the repositories that were verified
longest ago. So every repository is verified within as many nights as the schedule has days, however
many repositories there are. A night also verifies each repository whose days end before the next
night, and each corrupt repository until it is repaired.
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
"""The cost of verifying a small repository, in addition to its bytes: the start of Mercurial."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The last verification of a repository. Times are seconds since 1970."""

    seen: float
    """When the repository was first seen."""
    time: float = 0.0
    """End of the last verification that came to a result; 0 before the first result."""
    seconds: float = 0.0
    size: int = 0
    """Bytes of its store at the last measurement."""
    error: str = ""
    """The corruption found, empty if there is none."""
    identity: str = ""
    """Identity of the repository; empty in a result of an older release."""

    def since(self, now: float) -> float:
        """The time from which its days are counted; 0 if all its times are in the future."""
        return stored_time.past(self.time, now) or stored_time.past(self.seen, now)


def carried(known: Mapping[str, Checked], identities: Mapping[str, str]) -> dict[str, Checked]:
    """Return the results of the existing repositories, given their identities by path.

    A result belongs to a repository and follows it to another path. A result of an older release
    has no identity, and is taken for the repository at its path.
    """
    by_identity = {result.identity: result for result in known.values() if result.identity}
    results = {}
    for path, identity in identities.items():
        at_path = known.get(path)
        if identity and identity in by_identity:
            results[path] = by_identity[identity]
        elif at_path is not None and not at_path.identity:
            results[path] = replace(at_path, identity=identity)
    return results


def tonight(known: Mapping[str, Checked], *, days: int, now: float) -> list[str]:
    """Choose the repositories of a night, in the order of their verification."""
    # The share of a night is all bytes, divided by the days of the schedule. Take repositories
    # until their sum reaches the share, those verified longest ago first. If each night takes its
    # share, each repository is taken in time. Two kinds are taken although the share is used up:
    # corrupt repositories, and repositories whose days end before the next night.
    costs = {path: result.size + LEAST_BYTES for path, result in known.items()}
    share = sum(costs.values()) / days
    taken = 0
    chosen = []
    for path in sorted(costs, key=lambda name: (stored_time.past(known[name].time, now), name)):
        result = known[path]
        if taken < share or result.error or is_due(result, days, now):
            chosen.append(path)
            taken += costs[path]
    return chosen


def is_due(result: Checked, days: int, now: float) -> bool:
    """Whether the days of a repository end before the next night."""
    return now + DAY_SECONDS > result.since(now) + days * DAY_SECONDS


def overdue(known: Mapping[str, Checked], *, days: int, now: float) -> list[str]:
    """Return the repositories that were not verified within the days, the longest first.

    A night begins at a random time of some hours, so a day more is allowed.
    """
    late = [
        path for path, result in known.items() if now - result.since(now) > (days + 1) * DAY_SECONDS
    ]
    return sorted(late, key=lambda path: (known[path].since(now), path))


def corrupt(known: Mapping[str, Checked]) -> dict[str, str]:
    """Return the corrupt repositories, each with its corruption."""
    return {path: result.error for path, result in sorted(known.items()) if result.error}


def sentences(
    known: Mapping[str, Checked], ended: float | None, *, days: int, now: float
) -> list[str]:
    """Return the state of a host for people, corrupt repositories first."""
    lines = [
        f"{path}: CORRUPT at {_when(known[path].time)}: {text}; to repair it: "
        f"hgfleet integrity repair {path}"
        for path, text in corrupt(known).items()
    ]
    lines += [
        f"{path}: not verified for {_days(known[path].since(now), now)}"
        for path in overdue(known, days=days, now=now)
    ]
    verified = [result for result in known.values() if result.time]
    lines.append(
        f"{len(verified)} of {len(known)} repositories were verified, each has its turn within "
        f"{days} days; last run: {_when(ended) if ended else 'never'}"
    )
    if verified:
        lines.append(f"oldest result: {_when(min(result.time for result in verified))}")
    return lines


def _days(since: float, now: float) -> str:
    if not since:
        return "a known time: its last verification is later than the clock of this host"
    return f"{(now - since) / DAY_SECONDS:.0f} days"


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))

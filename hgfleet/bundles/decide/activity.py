"""Activity of repositories in the last day, for metrics: the busiest by name, the others together.

Names of private repositories are only for their readers, so private repositories have a single sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hgfleet.bundles.decide.demand import Demand

MOST: Final = 20
"""Repositories with a name. Each is a value of a label, and Prometheus can take few of them."""

PRIVATE: Final = "(private)"
OTHER: Final = "(other)"
"""Used in place of names; no path of a repository has a parenthesis."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Pushes to a repository, and its clones and pulls that this host answered itself."""

    pushes: int = 0
    clones: int = 0
    pulls: int = 0
    seconds: float = 0.0
    """Time of the host for clones and pulls."""
    bytes: int = 0
    """Sent for clones and pulls."""

    def __add__(self, other: Activity) -> Activity:
        return Activity(
            self.pushes + other.pushes,
            self.clones + other.clones,
            self.pulls + other.pulls,
            self.seconds + other.seconds,
            self.bytes + other.bytes,
        )

    @property
    def rank(self) -> tuple[float, ...]:
        """The order of the busiest: by the number of requests, then by their cost."""
        return (self.pushes + self.clones + self.pulls, self.seconds, self.bytes)


def of(pushes: int, demand: Demand | None) -> Activity:
    """Return the activity of a repository. Pure."""
    if demand is None:
        return Activity(pushes)
    return Activity(pushes, demand.clones, demand.pulls, demand.seconds, demand.bytes)


def busiest(
    activities: Mapping[str, Activity], public: Collection[str], most: int = MOST
) -> dict[str, Activity]:
    """Return the busiest public repositories, and the sums of the others. Pure."""
    named = {
        path: activity
        for path, activity in activities.items()
        if path in public and any(activity.rank)
    }
    order = sorted(named, key=lambda path: (named[path].rank, path), reverse=True)
    result = {path: named[path] for path in order[:most]}
    for path, activity in activities.items():
        if path not in result:
            name = OTHER if path in public else PRIVATE
            result[name] = result.get(name, Activity()) + activity
    return result

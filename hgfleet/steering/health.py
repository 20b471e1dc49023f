"""Whether endpoints and objects answer, as a state that probes change.

A prober on each host that answers clones asks every endpoint all the time. One failed probe takes
an endpoint out, because a client that is sent to a dead one loses its clone; it comes back only
after several good ones in a row, so that one that answers every other time stays out. A probe that
is answered, but too slowly, failed: 1 B/s is as dead as nothing.

The state is a file that the prober replaces after each round. Whoever reads it and finds it old
knows that nobody is probing, and must not trust it for more than `MAX_AGE` seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FORMAT: Final = 2
GOOD_IN_A_ROW: Final = 3
"""Probes that must succeed one after the other before a failed endpoint is advertised again."""

MAX_AGE: Final = 15.0
"""Seconds after which a state says nothing any more: a dead prober must not keep sending clients to
an endpoint that died after it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What the last probes of one endpoint say; `problem` is that of the last failed one."""

    is_up: bool = False
    good: int = 0
    problem: str = "not probed yet"

    def after(self, problem: str | None) -> Condition:
        """Return the condition after one more probe; `problem` None is a good one."""
        if problem is not None:
            return Condition(False, 0, problem)
        good = min(self.good + 1, GOOD_IN_A_ROW)
        # The first probe of all decides at once: a prober that starts must not leave clients
        # without bundles for the rounds it takes.
        is_up = self.is_up or good >= GOOD_IN_A_ROW or self == Condition()
        return Condition(is_up, good, "" if is_up else self.problem)


@dataclass(frozen=True, slots=True)
class Health:
    """The conditions of all endpoints by name, and the URLs of objects that do not answer.

    `read` are the URLs of copies that manifests do not name (`Endpoint.origin`), whose content has
    been read and is what was published. `written` is the time of the clock in seconds since 1970.
    """

    written: float
    endpoints: Mapping[str, Condition] = field(default_factory=dict)
    dead: Mapping[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()

    def down(self, names: Collection[str]) -> frozenset[str]:
        """Which of these endpoints must not be advertised; one that nobody probes is among them."""
        return frozenset(name for name in names if not self.endpoints.get(name, Condition()).is_up)

    def is_current(self, now: float) -> bool:
        """Whether it may be trusted; a time in the future is as wrong as an old one."""
        return abs(now - self.written) <= MAX_AGE


def dump(health: Health) -> str:
    """Render the state as JSON."""
    return json.dumps(
        {
            "format": FORMAT,
            "written": health.written,
            "endpoints": {
                name: {"up": one.is_up, "good": one.good, "problem": one.problem}
                for name, one in sorted(health.endpoints.items())
            },
            "dead": dict(sorted(health.dead.items())),
            "read": sorted(health.read),
        },
        indent=1,
    )


def parse(text: str) -> Health | None:
    """Read the state back; None for anything else."""
    try:
        data: Any = json.loads(text)
        if data["format"] != FORMAT:
            return None
        return Health(
            written=float(data["written"]),
            endpoints={
                name: Condition(one["up"] is True, int(one["good"]), str(one["problem"]))
                for name, one in data["endpoints"].items()
            },
            dead={str(url): str(problem) for url, problem in data["dead"].items()},
            read=frozenset(str(url) for url in data["read"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None

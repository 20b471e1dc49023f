"""Health of endpoints and objects, as a state that probes change.

A prober on each host that answers clones probes every endpoint all the time. One failed probe takes
an endpoint down, because a client that is sent to a dead endpoint loses its clone. Several good
probes in a row bring it up again, so an endpoint that answers every other time stays down. An
answer that is too slow is a failed probe: 1 B/s is as dead as silence.

The state is a file that the prober replaces after each round. An old file means that no prober is
running; its content counts for `MAX_AGE_SECONDS` only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FORMAT: Final = 2
GOOD_IN_A_ROW: Final = 3
"""Good probes in a row before a failed endpoint is advertised again."""

MAX_AGE_SECONDS: Final = 15.0
"""The age beyond which a state counts for nothing: after the end of the prober, clients must not be
sent to an endpoint that died later."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one endpoint; `problem` is that of the last failed probe."""

    is_up: bool = False
    good: int = 0
    problem: str = "not probed yet"

    def after(self, problem: str | None) -> Condition:
        """Return the condition after one more probe; `problem` None is a good one."""
        if problem is not None:
            return Condition(False, 0, problem)
        good = min(self.good + 1, GOOD_IN_A_ROW)
        # The first probe of all decides at once, so the start of a prober does not leave clients
        # without bundles for some rounds.
        is_up = self.is_up or good >= GOOD_IN_A_ROW or self == Condition()
        return Condition(is_up, good, "" if is_up else self.problem)


@dataclass(frozen=True, slots=True)
class Health:
    """The conditions of all endpoints by name, and the URLs of dead objects with the reasons.

    `read` are the URLs of copies (`Endpoint.origin`) whose content was read and is right; manifests
    do not name them. `written` is the time of the clock in seconds since 1970.
    """

    written: float
    endpoints: Mapping[str, Condition] = field(default_factory=dict)
    dead: Mapping[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()

    def down(self, names: Collection[str]) -> frozenset[str]:
        """Return the endpoints that must not be advertised, those without a probe included."""
        return frozenset(name for name in names if not self.endpoints.get(name, Condition()).is_up)

    def is_current(self, now: float) -> bool:
        """Whether the state counts; a time in the future is as wrong as an old one."""
        return abs(now - self.written) <= MAX_AGE_SECONDS


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

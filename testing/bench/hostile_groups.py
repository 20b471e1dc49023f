"""Groups of hostile requests that `hostile.py --phase at-once` sends at the same time.

An address has two renderers and six places to wait in each worker of the web part, so of 32
requests of a case that computes, 16 are computed and 16 are refused at once. A case of 2 s takes
16 s that way, on two processors, and all cases more than an hour. So some are sent together:

| case by itself                               | sent as                                     |
| -------------------------------------------- | ------------------------------------------- |
| answered within 0.2 s                        | 32 requests, the case by itself             |
| computed by a worker itself (clones, pulls)  | the same: nothing else tells its cost       |
| computed by a renderer for longer            | 32 requests, with two other cases           |

This is no weaker. The server meets 96 requests instead of 32, and computes as many at a time as
before. The processor time of each request is read from the access log, while 32 requests of a
single case give a mean that includes 16 refusals. Cases of a group take about the same memory, so
that renderers at work at the same time take as much as if all worked on the most expensive case. A
group that misses a bar is sent again, case by case; so is a case whose requests were all refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from testing.bench.hostile_cases import Case

CPU_BAR_SECONDS: Final = 2.0
MEMORY_BAR_BYTES: Final = 200_000_000

BUSY: Final = "429"
"""Status of a request whose address already has its share of renderers and places to wait."""

CHEAP_SECONDS: Final = 0.2
SIZE: Final = 3
"""Cases of a group: 96 connections. nginx accepts 128 from an address, the other client's too."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: `cpu` in seconds a request, `memory` of the largest request in bytes.

    A renderer computes only one request at a time, so the largest growth of any process is the
    memory that a request takes, or more. `unit` is the growth of all processes of the web part
    together in bytes, including the other client's requests. `computed` counts the requests that
    renderers computed, and `dearest` is the longest processor time of these requests in seconds.
    All fields but `statuses` and `wall` are figures of the group in which the case was sent.
    """

    name: str
    statuses: str
    wall: float
    cpu: float
    memory: int
    computed: int = 0
    dearest: float = 0.0
    unit: int = 0

    @property
    def is_tried(self) -> bool:
        """Whether the server computed an answer, or refused the request because of its content."""
        return self.statuses != BUSY

    @property
    def is_held(self) -> bool:
        """Whether the case stays below the bars."""
        return max(self.cpu, self.dearest) <= CPU_BAR_SECONDS and self.memory <= MEMORY_BAR_BYTES

    def to_json(self) -> dict[str, Any]:
        """Return the outcome for a file."""
        return asdict(self)


def plan(cases: Iterable[Case], alone: Mapping[str, Outcome]) -> list[list[Case]]:
    """Return the groups to send, single cases first; `alone` has the outcome of each single case.

    A case that is not in `alone` is a group of its own.
    """
    singles: list[list[Case]] = []
    dear: list[tuple[int, float, Case]] = []
    for case in cases:
        outcome = alone.get(case.name)
        if outcome is None or outcome.wall <= CHEAP_SECONDS or not outcome.computed:
            singles.append([case])
        else:
            dear.append((outcome.memory, outcome.dearest, case))
    dear.sort(key=lambda item: item[:2], reverse=True)
    ordered = [case for _, _, case in dear]
    return singles + [ordered[start : start + SIZE] for start in range(0, len(ordered), SIZE)]


def again(group: Sequence[Case], outcomes: Sequence[Outcome]) -> list[list[Case]]:
    """Return the groups to send again after a group was sent.

    All of its cases if any case missed a bar; otherwise the cases that found no free renderer.
    """
    if len(group) == 1:
        return []
    if not all(outcome.is_held for outcome in outcomes):
        return [[case] for case in group]
    return [[case] for case, sent in zip(group, outcomes, strict=True) if not sent.is_tried]

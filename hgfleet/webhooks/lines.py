"""Events that wait for a receiver: a line for each repository, in the order of its pushes. Pure.

The broker keeps the events until they are acknowledged; the lines here end with the process.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from hgfleet.replication.protocol.events import Event

MOST_REMEMBERED: Final = 1000
"""Repositories for which the last completed event is remembered."""


class Place(NamedTuple):
    """The place of an event in its line: letters to be tried again come before events."""

    era: int
    """Counts the streams: when the brokers lose them and create new streams, numbers start
    again."""
    is_event: bool
    number: int
    """The number in its stream."""


@dataclass(slots=True)
class Waiting:
    """An event that waits. `received` is in seconds since 1970."""

    event: Event
    place: Place
    received: float
    reply: str = ""
    """The subject to which the acknowledgement goes; a letter has none."""
    attempts: int = 0
    reason: str = ""
    """Why the last attempt failed."""
    is_over: bool = False
    """Delivered or dead, but the broker may not know it yet."""


class Lines:
    """The lines of a receiver. Each line has a task that takes its events in turn."""

    def __init__(self) -> None:
        self.era = 1
        self._last_event = 0
        self._held: dict[Place, Waiting] = {}
        self._lines: dict[str, list[Place]] = {}
        self._last_done: dict[str, int] = {}

    def add(self, waiting: Waiting) -> bool:
        """Add an event to its line; return whether the line is new.

        The broker repeats an event whose acknowledgement took too long.
        """
        if waiting.place.is_event:
            self._last_event = max(self._last_event, waiting.place.number)
        if (held := self._held.get(waiting.place)) is not None:
            held.reply = waiting.reply
            return False
        self._held[waiting.place] = waiting
        is_new = waiting.event.repository not in self._lines
        heapq.heappush(self._lines.setdefault(waiting.event.repository, []), waiting.place)
        return is_new

    def take(self, repository: str) -> Waiting | None:
        """Return the first event of a line, to be held until it is done; None ends the line."""
        if not (line := self._lines[repository]):
            del self._lines[repository]
            return None
        return self._held[heapq.heappop(line)]

    def done(self, waiting: Waiting) -> None:
        """Forget an event; the broker knows that it was delivered or is dead."""
        del self._held[waiting.place]
        if waiting.place.is_event and waiting.place.era == self.era:
            self._last_done.pop(waiting.event.repository, None)
            self._last_done[waiting.event.repository] = waiting.place.number
            if len(self._last_done) > MOST_REMEMBERED:
                del self._last_done[next(iter(self._last_done))]

    def was_done(self, repository: str, number: int) -> bool:
        """Whether an event, which a broker without its state sends again, was completed before."""
        return number <= self._last_done.get(repository, 0)

    def replies(self) -> list[str]:
        """Return the subjects that acknowledge the events that wait."""
        return [
            event.reply for event in self._held.values() if self.is_known(event) and event.reply
        ]

    def is_known(self, waiting: Waiting) -> bool:
        """Whether the brokers still keep an event that is held here and not over."""
        return waiting.place.era == self.era and not waiting.is_over

    def begin_era(self) -> None:
        """Record that the brokers have new streams: the events held here exist nowhere else."""
        self.era, self._last_event = self.era + 1, 0
        self._last_done.clear()

    @property
    def next_event(self) -> int:
        """The number of the first event that is not completed; 0 before the first event."""
        held = [place.number for place in self._held if place.is_event and place.era == self.era]
        is_new = self.era == 1 and not self._last_event
        return min(held, default=0 if is_new else self._last_event + 1)

    def state(self) -> dict[str, object]:
        """Describe the waiting events: number, oldest time, failure of the most tried event."""
        waiting = self._held.values()
        most = max(waiting, key=lambda event: event.attempts, default=None)
        return {
            "waiting": len(waiting),
            "oldest": min((event.received for event in waiting), default=0.0),
            "reason": most.reason if most is not None else "",
        }

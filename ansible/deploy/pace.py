"""How long a run of a playbook will take, from the run before. Pure: no clock is read here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

START = ""
"""The name for the time before the first play, in which Ansible reads the inventory."""


@dataclass
class Pace:
    """The plays of a run: how long each took in the run before, and when each began in this one.

    `before` has the seconds of each play in their order. Times are seconds since the run's begin.
    """

    before: Mapping[str, float]
    begun: dict[str, float] = field(default_factory=lambda: {START: 0.0})

    def begin(self, play: str, at: float) -> float | None:
        """Note that a play begins; return when the run is expected to end.

        None for a play that was not in the run before: how long the rest takes is not known.
        """
        self.begun[play] = at
        if play not in self.before:
            return None
        plays = list(self.before)
        return at + sum(self.before[later] for later in plays[plays.index(play) :])

    def end(self, at: float) -> dict[str, float]:
        """Return the seconds of each play, which are `before` for the next run."""
        ends = [*list(self.begun.values())[1:], at]
        return {
            play: round(end - begin, 3)
            for (play, begin), end in zip(self.begun.items(), ends, strict=True)
        }

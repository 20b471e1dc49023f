"""Remove the tokens of people who may not use the service any more.

`hgfleet person disable` runs where the directory is, tokens are where SSH sessions run. Sign-in
refuses a disabled person with any token, yet a token that stays works again once the person is
enabled. So the primary looks at the owners of its tokens every minute:

==============================  ==============================================================
the directory says of an owner  the tokens
==============================  ==============================================================
enabled                         stay
disabled                        are removed at once, for good
missing                         are removed after `MISSING_S`, if the directory said so all that
                                time, and knew another owner at each look
unclear, or nothing             stay, and the time of a missing owner begins anew
==============================  ==============================================================

A directory that is empty knows no owner, and a replica that is being filled knows some: neither
takes a token away, since a person who is only missing may come with the next entries.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file
from hgfleet.core import logfmt
from hgfleet.core.errors import TemporaryError, UnavailableError
from hgfleet.directory.person_state import DISABLED, ENABLED, MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hgfleet.auth.tokens import Tokens
    from hgfleet.directory.person_state import PersonState

EVERY_S: Final = 60.0

MOST_FAILURES: Final = 3
"""Questions without an answer that end a look: each may take seconds. One of them may be about a
person whose entries the directory does not give out."""

MISSING_S: Final = 3600.0
"""A replica of some 10,000 people is filled in minutes."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Owners whose tokens go, with the reason; since when each other owner has been missing."""

    gone: Mapping[str, str]
    missing: Mapping[str, float]


def decide(states: Mapping[str, str], missing: Mapping[str, float], now: float) -> Sweep:
    """Decide about the owners of tokens, by the state of each that the directory told. Pure.

    An owner without a state is one that no server answered about.
    """
    gone = {owner: DISABLED for owner, state in states.items() if state == DISABLED}
    # A disabled person is an entry, so the directory is not empty.
    if not any(state in (ENABLED, DISABLED) for state in states.values()):
        return Sweep({}, {})
    still = {o: missing.get(o, now) for o, state in states.items() if state == MISSING}
    gone |= {owner: MISSING for owner, since in still.items() if now - since >= MISSING_S}
    return Sweep(gone, {o: since for o, since in still.items() if o not in gone})


def to_remove(tokens: Tokens, seen: Tokens, owners: Mapping[str, str]) -> Tokens:
    """Return the tokens of the owners that were seen before the directory was asked. Pure.

    A later one is of a person who was enabled again, since no other one can make a token.
    """
    return {n: token for n, token in tokens.items() if n in seen and token.owner in owners}


@dataclass
class Sweeper:
    """Looks again and again; what it knows of missing owners ends with the process."""

    path: str
    ask: Callable[[str], PersonState]
    may_change: Callable[[], None]
    """Raises TemporaryError where another host is the primary."""
    log: logfmt.Log
    clock: Callable[[], float] = time.monotonic
    _missing: Mapping[str, float] = field(default_factory=dict)
    _problem: str = ""

    def look(self) -> None:
        """Look once. A problem is logged when it is another one than at the last look."""
        try:
            problem = self._look()
        except (TemporaryError, token_file.TokensError) as error:
            self._missing, problem = {}, str(error)
        if problem != self._problem:
            self.log(logfmt.line("token-sweep", problem=problem or None))
            self._problem = problem

    def _look(self) -> str:
        self.may_change()
        seen = token_file.load(self.path)
        states, problem = self._states({token.owner for token in seen.values()})
        sweep = decide(states, self._missing, self.clock())
        self._missing = sweep.missing
        if sweep.gone:
            self.may_change()
            with token_file.update(self.path) as kept:
                removed = to_remove(kept, seen, sweep.gone)
                for name in removed:
                    del kept[name]
            for name, token in sorted(removed.items()):
                reason = sweep.gone[token.owner]
                fields = {"owner": token.owner, "token": name, "reason": reason}
                self.log(logfmt.line("token", action="remove", **fields))
        return problem

    def _states(self, owners: set[str]) -> tuple[dict[str, str], str]:
        states: dict[str, str] = {}
        problems: list[str] = []
        for owner in sorted(owners):
            try:
                states[owner] = self.ask(owner).state
            except UnavailableError as error:
                problems.append(str(error))
                if len(problems) == MOST_FAILURES:
                    break
        return states, problems[0] if problems else ""

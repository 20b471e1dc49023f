"""Remove the tokens of people who may not use the service any more; bind tokens to their people.

`hgfleet person disable` runs where the directory is, and tokens are where SSH sessions run. Sign-in
refuses a disabled person with any token, yet a token that stays works again once the person is
enabled. So the primary checks the owners of its tokens every minute:

==============================  ==============================================================
the directory says of an owner  the tokens
==============================  ==============================================================
enabled                         stay
disabled                        are removed at once, for good
missing                         are removed after `MISSING_S`, if the directory said so all that
                                time, and knew another owner at each check
another person has the name     work no longer, and are removed after `MISSING_S`, unless most
                                owners are other people: then the directory was filled again
unclear, or nothing             stay, and the time of a missing owner begins again
==============================  ==============================================================

A token of an older release has no person id. It is bound to the person of today with the name of
its owner, unless it is older than that person: then a former person of the name made it, and it is
refused like another person's token (`Principal.owns`).

An empty directory knows no owner, and a replica that is being filled knows some. Neither removes a
token, since a person who is only missing may come with the next entries.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file
from hgfleet.core import logfmt, person_id
from hgfleet.core.errors import TemporaryError, UnavailableError
from hgfleet.directory.person_state import DISABLED, ENABLED, MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hgfleet.auth.tokens import Tokens
    from hgfleet.directory.person_state import PersonState

    Owner = tuple[str, str]
    """Name and person id, as a token has them."""

EVERY_S: Final = 60.0

MOST_FAILURES: Final = 3
"""Questions without an answer after which a check ends: each may take seconds. One of them may be
about a person whose entries the directory does not give out."""

MISSING_S: Final = 3600.0
"""A replica of some 10,000 people is filled in minutes."""

ANOTHER: Final = "another-person"

FEW: Final = 10
"""Owners whose names others have: so many are always believed, more only if they are a minority."""

REFILLED: Final = (
    "{count} owners of tokens are not today's people of their names, so their tokens work no "
    "longer and stay for now; if the directory was filled again, `hgfleet owners bind --all` "
    "binds them"
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Owners whose tokens are removed, with the reason; and since when other owners are missing."""

    gone: Mapping[Owner, str]
    missing: Mapping[Owner, float]
    others: int = 0
    """Owners whose names others have, if they are too many to be believed."""


def state_of(owner: Owner, current: PersonState) -> str:
    """Return the state of an owner, by the answer about the name. Pure."""
    if current.state == ENABLED and current.person_id not in ("", owner[1]):
        return ANOTHER
    return current.state


def to_bind(tokens: Tokens, people: Mapping[str, PersonState], now: float) -> dict[str, str]:
    """Return the person id of each token that has no person id, if its owner is certain. Pure."""
    bound = {}
    for name, token in tokens.items():
        person = people.get(token.owner)
        if token.owner_id or person is None or not person.person_id:
            continue
        if not person_id.is_older(token.created, person.person_id, now):
            bound[name] = person.person_id
    return bound


def decide(states: Mapping[Owner, str], missing: Mapping[Owner, float], now: float) -> Sweep:
    """Decide about the owners of tokens, by the state of each in the directory. Pure.

    An owner has no state if no server answered about that owner.
    """
    # A disabled owner is certain, and loses the tokens at once. A missing owner is not: a replica
    # may be empty or half filled. So a missing owner has to be missing in every check for
    # `MISSING_S`. A check that finds none of the owners proves nothing, and starts all times again.
    # A name that belongs to another person now is treated like a missing owner, unless there are so
    # many that the directory was probably filled again, which gives the same people new entries.
    gone = {owner: DISABLED for owner, state in states.items() if state == DISABLED}
    # A disabled person has an entry, so the directory is not empty.
    if not any(state in (ENABLED, DISABLED, ANOTHER) for state in states.values()):
        return Sweep({}, {})
    others = sum(state == ANOTHER for state in states.values())
    many = others > FEW and 2 * others > len(states)
    away = (MISSING,) if many else (MISSING, ANOTHER)
    still = {o: missing.get(o, now) for o, state in states.items() if state in away}
    gone |= {owner: states[owner] for owner, since in still.items() if now - since >= MISSING_S}
    left = {owner: since for owner, since in still.items() if owner not in gone}
    return Sweep(gone, left, others if many else 0)


def to_remove(tokens: Tokens, seen: Tokens, owners: Mapping[Owner, str]) -> Tokens:
    """Return the tokens of the owners that existed before the directory was asked. Pure.

    A later token belongs to a person who was enabled again, since no other person can make a token.
    """
    return {n: t for n, t in tokens.items() if n in seen and (t.owner, t.owner_id) in owners}


@dataclass
class Sweeper:
    """Checks owners again and again; its memory of missing owners ends with the process."""

    path: str
    ask: Callable[[str], PersonState]
    may_change: Callable[[], None]
    """Raises TemporaryError where another host is the primary."""
    log: logfmt.Log
    clock: Callable[[], float] = time.monotonic
    _missing: Mapping[Owner, float] = field(default_factory=dict)
    _problem: str = ""

    def poll(self) -> None:
        """Check the owners once.

        A problem is logged if it differs from the last check's problem.
        """
        try:
            problem = self._poll()
        except (TemporaryError, token_file.TokensError) as error:
            self._missing, problem = {}, str(error)
        if problem != self._problem:
            self.log(logfmt.line("token-sweep", problem=problem or None))
            self._problem = problem

    def _poll(self) -> str:
        self.may_change()
        seen = token_file.load(self.path)
        people, problem = ask_about({token.owner for token in seen.values()}, self.ask)
        bound = to_bind(seen, people, time.time())
        owners = {(token.owner, bound.get(n, token.owner_id)) for n, token in seen.items()}
        states = {
            owner: state_of(owner, people[owner[0]]) for owner in owners if owner[0] in people
        }
        sweep = decide(states, self._missing, self.clock())
        self._missing = sweep.missing
        if sweep.gone or bound:
            self._change(seen, bound, sweep)
        return problem or (REFILLED.format(count=sweep.others) if sweep.others else "")

    def _change(self, seen: Tokens, bound: Mapping[str, str], sweep: Sweep) -> None:
        self.may_change()
        with token_file.update(self.path) as kept:
            for name in bound:
                if kept.get(name) == seen[name]:
                    kept[name] = replace(seen[name], owner_id=bound[name])
            removed = to_remove(kept, seen, sweep.gone)
            for name in removed:
                del kept[name]
        if bound:
            self.log(logfmt.line("token-sweep", bound=len(bound)))
        for name, token in sorted(removed.items()):
            reason = sweep.gone[token.owner, token.owner_id]
            fields = {"owner": token.owner, "token": name, "reason": reason}
            self.log(logfmt.line("token", action="remove", **fields))


def ask_about(
    names: set[str], ask: Callable[[str], PersonState]
) -> tuple[dict[str, PersonState], str]:
    """Ask the directory about these names; return the answers, and the first problem or ""."""
    people: dict[str, PersonState] = {}
    problems: list[str] = []
    for name in sorted(names):
        try:
            people[name] = ask(name)
        except UnavailableError as error:
            problems.append(str(error))
            if len(problems) == MOST_FAILURES:
                break
    return people, problems[0] if problems else ""

"""Whether the person of an open session may still be let in: when to ask again, and what follows.

A login is decided by the directory: the person is enabled, has this key, and is in these groups. A
session goes on for hours, and a client may open further sessions over the connection of one login
(ControlMaster). So a session asks again before a command where the last answer is old:

==============================  ==============================================================
the directory says              the session
==============================  ==============================================================
as at the login, or more groups goes on with the groups of its login
fewer groups                    ends; the next one has the groups of now
the key of the login is gone    ends
another person has the name     ends
disabled, missing, unclear      ends
nothing: no server answers      goes on for `UNKNOWN_S` after the last answer, and ends then
==============================  ==============================================================

A session may start so often that this module imports nothing slow.
"""

from __future__ import annotations

from hgfleet.core.errors import UnavailableError
from hgfleet.core.stored_time import age

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from hgfleet.core.principal import Principal
    from hgfleet.directory.person_state import PersonState

EVERY_S: Final = 45.0
"""From an answer to the next question. With the age of answers of the daemon less than a minute."""

RETRY_S: Final = 10.0
"""From a question without an answer to the next one: each may hold up a command for seconds."""

UNKNOWN_S: Final = 600.0
"""A session ends that long after the last answer: a directory that an intruder keeps from answering
gives no right for longer, and a restart of its servers breaks off no push."""


def login_age(login: str, now: float) -> float:
    """Return the age in seconds of a login, by its time (a text) and the clock of the system.

    Infinite for a text that is no time, and for a time from the future.
    """
    seconds = int(login) if login.isascii() and login.isdigit() and len(login) <= 12 else None
    return float("inf") if seconds is None else age(seconds, now, 1.0)


def objection(principal: Principal, key: str, found: PersonState) -> str | None:
    """Return why a session may not go on, as a sentence for the person; None if it may. Pure.

    `principal` is the person as of the login, `key` the fingerprint of the key that opened the
    session, "" where a certificate did. A server that does not give person ids, or a login of a
    release before, is no reason to end a session.
    """
    person = principal.name
    if found.state != "enabled":
        return (
            f"{person} may not use this service any more; if that is a mistake, tell the operators"
        )
    if principal.person_id and found.person_id not in ("", principal.person_id):
        return (
            f"the name {person} belongs to another person since this session began; if that is a "
            "mistake, tell the operators"
        )
    if key and key not in found.keys:
        return f"the key of this session is no key of {person} any more; log in with another key"
    if principal.groups - found.groups:
        return f"the groups of {person} changed while this session was open; run the command again"
    return None


class PersonWatch:
    """Asks again about the person of a session. One for each session, in one thread."""

    def __init__(
        self,
        principal: Principal,
        key: str,
        ask: Callable[[str], PersonState],
        *,
        age: float,
        now: float,
    ) -> None:
        """Begin at the time `now` of the caller's clock, `age` seconds after the login."""
        self._principal = principal
        self._key = key
        self._ask = ask
        # A login of unknown age is asked about at once, and its time without an answer begins now.
        self._due = now - age + EVERY_S if age != float("inf") else now
        self._end = now - (age if age != float("inf") else 0.0) + UNKNOWN_S

    def look(self, now: float) -> str | None:
        """Return why the session may not go on, as a sentence; None if it may."""
        if now < self._due:
            return None
        try:
            found = self._ask(self._principal.name)
        except UnavailableError:
            self._due = now + RETRY_S
            if now < self._end:
                return None
            return (
                "the directory of this service does not answer, so the rights of this session are "
                "not known any more; try again later"
            )
        self._due = now + EVERY_S
        self._end = now + UNKNOWN_S
        return objection(self._principal, self._key, found)

"""Whether the person of an open session may go on, and when the session asks that again.

The directory decides about a login: the person is enabled, has this key, and is in these groups. A
session goes on for hours, and a client may open further sessions over the connection of a single
login (ControlMaster). So a session asks again before a command if the last answer is old:

==============================  ==============================================================
the directory says              the session
==============================  ==============================================================
as at the login, or more groups goes on with the groups of its login
fewer groups                    ends; the next session has the current groups
the key of the login is gone    ends
another person has the name     ends
disabled, missing, unclear      ends
nothing: no server answers      goes on for `UNKNOWN_S` after the last answer, and ends then
==============================  ==============================================================

Sessions may start very often, so this module imports nothing slow.
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
"""From an answer to the next question. With the age of the daemon's answers, less than a minute."""

RETRY_S: Final = 10.0
"""From a failed question to the next: each question may hold up a command for seconds."""

UNKNOWN_S: Final = 600.0
"""A session ends that long after the last answer.

An intruder who keeps the directory from answering gains no more time than that, and a restart of
the directory's servers breaks off no push.
"""


def login_age(login: str, now: float) -> float:
    """Return the age in seconds of a login, by its time (a text) and the clock of the system.

    Infinite for a text that is not a time, and for a time from the future.
    """
    seconds = int(login) if login.isascii() and login.isdigit() and len(login) <= 12 else None
    return float("inf") if seconds is None else age(seconds, now, 1.0)


def objection(principal: Principal, key: str, current: PersonState) -> str | None:
    """Return why a session may not go on, as a sentence for the person; None if it may. Pure.

    `principal` is the person as of the login, `key` the fingerprint of the key that opened the
    session, "" where a certificate did. A session does not end because the server gives no person
    ids, or because its login is from an older release.
    """
    person = principal.name
    if current.state != "enabled":
        return (
            f"{person} may not use this service any more; if that is a mistake, tell the operators"
        )
    if principal.person_id and current.person_id not in ("", principal.person_id):
        return (
            f"the name {person} belongs to another person since this session began; if that is a "
            "mistake, tell the operators"
        )
    if key and key not in current.keys:
        return f"the key of this session is no key of {person} any more; log in with another key"
    if principal.groups - current.groups:
        return f"the groups of {person} changed while this session was open; run the command again"
    return None


class PersonWatch:
    """Asks again about the person of a session. Each session has its own, in a single thread."""

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
        # A login of unknown age is checked at once, and its time without an answer begins now.
        self._due = now - age + EVERY_S if age != float("inf") else now
        self._end = now - (age if age != float("inf") else 0.0) + UNKNOWN_S

    def check(self, now: float) -> str | None:
        """Return why the session may not go on, as a sentence; None if it may."""
        if now < self._due:
            return None
        try:
            person = self._ask(self._principal.name)
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
        return objection(self._principal, self._key, person)

"""Ids of sessions and requests: each log line of a push or a clone has the same id.

The first part that a client reaches makes the id: the access shell for an SSH session, the proxy
for an HTTPS request. Each part passes the id on: the shell to hg in the environment, the session to
the relay, the relay to mirrors in a header of the message, the proxy to nginx and nginx to the web
worker in a header of the request. A part accepts an id only if it has the right form, because a
header may come from a client.

Imports nothing slow, not `os` either: it runs at every login.
"""

from __future__ import annotations

import posix
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

LENGTH: Final = 16
"""Hexadecimal digits, 64 bits: of a million sessions a day for a year, two share one with a
probability of 0.4 %."""

VARIABLE: Final = "HGFLEET_ID"
"""The variable in the environment of hg."""

_DIGITS: Final = frozenset("0123456789abcdef")
_current: Final = ContextVar("hgfleet_id", default="")


def new() -> str:
    """Make an id."""
    return posix.urandom(LENGTH // 2).hex()


def is_id(value: object) -> bool:
    """Whether a value has the form of an id."""
    return isinstance(value, str) and len(value) == LENGTH and _DIGITS.issuperset(value)


def accepted(value: object) -> str:
    """Return a value from another part if it is an id, else ""."""
    return str(value) if is_id(value) else ""


def begin(identity: str) -> None:
    """Set the id of the session or request that this thread works on from now on."""
    _current.set(identity)


def current() -> str:
    """Return the id of the session or request of this thread, "" outside of both.

    A process that a session starts finds the id in its environment.
    """
    inherited = posix.environ.get(VARIABLE.encode("ascii"), b"")
    return _current.get() or accepted(inherited.decode("ascii", "replace"))

"""Ids of sessions and requests: the same id is on each log line of one push or one clone.

The first part that meets a client makes the id: the access shell for an SSH session, the proxy for
an HTTPS request. Each part hands it on: the shell to hg in the environment, the session to the
relay, the relay to mirrors in a header of the message, the proxy to nginx and nginx to the web
worker in a header of the request. A part takes an id from another one only in its one form, because
a header may come from a client.

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
"""Of the environment of hg."""

_DIGITS: Final = frozenset("0123456789abcdef")
_current: Final = ContextVar("hgfleet_id", default="")


def new() -> str:
    """Make an id."""
    return posix.urandom(LENGTH // 2).hex()


def is_id(value: object) -> bool:
    """Whether a value has the form of an id."""
    return isinstance(value, str) and len(value) == LENGTH and _DIGITS.issuperset(value)


def accepted(value: object) -> str:
    """Return a value from another part if it is an id, else an empty text."""
    return str(value) if is_id(value) else ""


def begin(identity: str) -> None:
    """Set the id of the session or request that this thread works on from now on."""
    _current.set(identity)


def current() -> str:
    """Return the id of the session or request of this thread, an empty text without one.

    A process that a session starts finds the id in its environment.
    """
    inherited = posix.environ.get(VARIABLE.encode("ascii"), b"")
    return _current.get() or accepted(inherited.decode("ascii", "replace"))

"""Structured lines for syslog and the journal, a line per event: `event=key decision=deny ...`.

Values come from unknown clients, so a value can never begin a new line or a new field, and its
length is bounded.
"""

from __future__ import annotations

import sys
import syslog

from hgfleet.core import trace

# `re` and `typing` take 10 ms to import, and a line is written by programs that run at every login.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Log = Callable[[str], None]
    Events = Callable[..., None]

MAX_VALUE = 300
"""Most characters of a value; a client may send a command of 256 KiB (an SSH packet)."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+,=~-")


def line(event: str, **fields: object) -> str:
    """Format one event. Durations are given in seconds, sizes in bytes; None is left out.

    The last field is the id of the session or request that the thread works on.
    """
    parts = [f"event={event}"]
    if "id" not in fields:
        fields["id"] = trace.current() or None
    parts += [f"{name}={_value(value)}" for name, value in fields.items() if value is not None]
    return " ".join(parts)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    if len(text) > MAX_VALUE:
        text = f"{text[:MAX_VALUE]}...({len(text)} characters)"
    if text and _PLAIN.issuperset(text):
        return text
    # unicode_escape keeps printable ASCII and turns everything else, surrogates of undecodable
    # bytes included, into \n, \x1b, \udcff and the like.
    escaped = text.encode("unicode_escape", "surrogatepass").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def to_syslog(identifier: str) -> Log:
    """Return a function that writes a line to the system log under this identifier."""
    syslog.openlog(identifier, syslog.LOG_PID, syslog.LOG_AUTHPRIV)
    return lambda text: syslog.syslog(syslog.LOG_INFO, text)


def to_journal(text: str) -> None:
    """Write one line to the standard error, which is the journal for a unit."""
    print(text, file=sys.stderr, flush=True)


def events(part: str) -> Events:
    """Return a function that prints an event of a part, by its name and fields."""

    def log(event: str, **fields: object) -> None:
        print(line(f"{part}.{event}", **fields), flush=True)

    return log

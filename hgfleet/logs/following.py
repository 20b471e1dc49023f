"""Which entries belong to a session, a request or a push, and which other names to search. Pure.

An entry belongs to an id if its field `id` is that id, or if its field `push` is a push of that
id's session. The session's line `event=push` has both fields, so entries of a mirror are found even
if their messages do not name the session. sshd does not know the id: its lines are found by address
and port of the client, which the first line of the session has.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import trace
from hgfleet.core.errors import UsageError
from hgfleet.logs.log_entry import MICROSECONDS, PUSH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hgfleet.logs.log_entry import Entry

MOST_NAMES: Final = 100
"""Most names that a search follows: of a session with more pushes, the first are shown."""

LOGIN_SECONDS: Final = 600
"""Time before a session's first line and after its last line, for the lines of its connection."""

SSHD: Final = ("sshd", "sshd-session", "sshd-auth")
"""Programs of OpenSSH 10, by their identifiers in the journal."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to sshd: address and port of the client, and when (microseconds)."""

    client: str
    port: int
    begin: int
    end: int

    @property
    def pattern(self) -> str:
        """A regular expression for sshd's lines about the connection."""
        return rf"\bfrom {re.escape(self.client)} port {self.port}\b"


def names(given: Sequence[str]) -> frozenset[str]:
    """Check ids and names of pushes from a command line. Raises UsageError."""
    for name in given:
        if not (trace.is_id(name) or PUSH.fullmatch(name)):
            raise UsageError(
                f"got {name!r:.80}, expected the id of a session or request (16 hexadecimal "
                "digits, as a pusher reads it) or the name of a push (`push=` of a log line)"
            )
    return frozenset(given)


def pattern(wanted: Collection[str]) -> str:
    """Return a regular expression that finds lines with any of the names."""
    return "|".join(re.escape(name) for name in sorted(wanted))


def belongs(entry: Entry, wanted: Collection[str]) -> bool:
    """Whether an entry has any of the names in the field for such names."""
    return bool((entry.id and entry.id in wanted) or (entry.push and entry.push in wanted))


def more(entries: Iterable[Entry], wanted: Collection[str]) -> frozenset[str]:
    """Return the wanted names and the names related to them: ids of pushes, and pushes of ids."""
    known = frozenset(wanted)
    for entry in entries:
        new = {name for name in (entry.id, entry.push) if name} - known
        if belongs(entry, known) and len(known) + len(new) <= MOST_NAMES:
            known |= new
    return known


def connections(entries: Iterable[Entry]) -> list[Connection]:
    """Return the connections of sessions; a malformed address or port is left out."""
    times: dict[tuple[str, int], list[int]] = {}
    ids: dict[str, tuple[str, int]] = {}
    ordered = in_order(entries)
    for entry in ordered:
        place = _place(entry)
        if place is not None:
            ids[entry.id] = place
        if entry.id in ids:
            times.setdefault(ids[entry.id], []).append(entry.time)
    margin = LOGIN_SECONDS * MICROSECONDS
    return [Connection(*place, min(at) - margin, max(at) + margin) for place, at in times.items()]


def _place(entry: Entry) -> tuple[str, int] | None:
    if entry.fields.get("event") != "session" or not entry.id:
        return None
    try:
        client = str(ipaddress.ip_address(entry.fields["client"]))
        port = int(entry.fields["port"])
    except (KeyError, ValueError):
        return None
    return (client, port) if 0 < port < 65536 else None


def is_of(entry: Entry, connection: Connection) -> bool:
    """Whether an entry is a line of sshd about a connection."""
    return (
        entry.source in SSHD
        and connection.begin <= entry.time <= connection.end
        and re.search(connection.pattern, entry.message) is not None
    )


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries by time, each once."""
    unique = {(entry.time, entry.host, entry.source, entry.message): entry for entry in entries}
    return [unique[key] for key in sorted(unique)]

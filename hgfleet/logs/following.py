"""Which entries belong to a session, a request or a push, and what else to look for. Pure.

An entry belongs to an id if its field `id` is that id, or its field `push` is a push of that id's
session. The session's line `event=push` has both, so an entry of a mirror is found also where its
message did not name the session. sshd knows no id: its lines are found by address and port of the
client, which the session's first line has.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core import trace
from hgfleet.core.errors import UsageError
from hgfleet.logs.entry import MICROSECONDS, PUSH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hgfleet.logs.entry import Entry

MOST_NAMES: Final = 100
"""Names that one search follows: a session with more pushes shows the first of them."""

LOGIN_SECONDS: Final = 600
"""Before a session's first line and after its last one, for the lines of its connection."""

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
        """A regular expression of what sshd says of it."""
        return rf"\bfrom {re.escape(self.client)} port {self.port}\b"


def names(given: Sequence[str]) -> frozenset[str]:
    """Check ids and names of pushes from a command line. Raises UsageError."""
    for one in given:
        if not (trace.is_id(one) or PUSH.fullmatch(one)):
            raise UsageError(
                f"got {one!r:.80}, expected the id of a session or request (16 hexadecimal digits, "
                "as a pusher reads it) or the name of a push (`push=` of a log line)"
            )
    return frozenset(given)


def pattern(wanted: Collection[str]) -> str:
    """Return a regular expression that finds lines with one of the names."""
    return "|".join(re.escape(one) for one in sorted(wanted))


def belongs(entry: Entry, wanted: Collection[str]) -> bool:
    """Whether an entry has one of the names in the field that is for it."""
    return bool((entry.id and entry.id in wanted) or (entry.push and entry.push in wanted))


def more(entries: Iterable[Entry], wanted: Collection[str]) -> frozenset[str]:
    """Return the names of the entries and those that were wanted: ids of pushes, pushes of ids."""
    found = frozenset(wanted)
    for entry in entries:
        new = {name for name in (entry.id, entry.push) if name} - found
        if belongs(entry, found) and len(found) + len(new) <= MOST_NAMES:
            found |= new
    return found


def connections(entries: Iterable[Entry]) -> list[Connection]:
    """Return the connections of sessions; an address or port that is none is left out."""
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
    """Whether an entry is sshd's about a connection."""
    return (
        entry.source in SSHD
        and connection.begin <= entry.time <= connection.end
        and re.search(connection.pattern, entry.message) is not None
    )


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries by time, each once."""
    unique = {(one.time, one.host, one.source, one.message): one for one in entries}
    return [unique[key] for key in sorted(unique)]

"""Entries of logs: the one form of a journal's line and of a request log's line. Pure.

A message is fields in `key=value` (`hgfleet.core.logfmt`), fields in JSON (the proxy, nginx, the
web workers), or a sentence. Much of it comes from clients, so it is parsed as hostile input: a
message has fields only if all of it has the form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import text, trace

if TYPE_CHECKING:
    from collections.abc import Mapping

PUSH: Final = re.compile(r"[0-9a-f]{32}\.[1-9][0-9]{0,17}")
"""The name of a push: the identity of its repository, and its number there."""

LONGEST_SHOWN: Final = 4000
"""Characters of a message at a terminal."""

MICROSECONDS: Final = 1_000_000

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
_VALUE: Final = r'"(?:[^"\\]|\\.)*"|[^ "]*'
_FIELD: Final = re.compile(rf"({_NAME})=({_VALUE})(?: |\Z)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a log. `time` is in microseconds since 1970.

    `source` is the program (its identifier in the journal), or the unit of a file of logs.
    """

    time: int
    host: str
    source: str
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id of the session or request, an empty text without one."""
        return trace.accepted(self.fields.get("id"))

    @property
    def push(self) -> str:
        """The name of the push, an empty text without one."""
        named = self.fields.get("push", "")
        return named if PUSH.fullmatch(named) else ""

    def line(self) -> str:
        """Return the entry as a line for people; lines sort by time as texts do."""
        shown = text.shown(self.message, LONGEST_SHOWN)
        return f"{stamp(self.time)} {text.shown(self.host)} {text.shown(self.source)}: {shown}"

    def to_json(self) -> str:
        """Return the entry as a line of JSON in ASCII."""
        data = {
            "time": stamp(self.time),
            "host": self.host,
            "source": self.source,
            "fields": dict(self.fields),
            "message": self.message,
        }
        return json.dumps(data)


def stamp(time: int) -> str:
    """Return a time in UTC with microseconds."""
    seconds, rest = divmod(time, MICROSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def fields_of(message: str) -> dict[str, str]:
    """Return the fields of a message, none of a sentence."""
    if message.startswith("{"):
        return _of_json(message)
    if not message.startswith("event="):
        return {}
    found: dict[str, str] = {}
    end = 0
    while end < len(message):
        match = _FIELD.match(message, end)
        if match is None or match[1] in found:
            return {}
        found[match[1]] = _plain(match[2])
        end = match.end()
    return found


def _plain(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return value[1:-1].encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return value


def _of_json(message: str) -> dict[str, str]:
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {name: value if isinstance(value, str) else str(value) for name, value in data.items()}


def of_journal(line: bytes) -> Entry | None:
    """Read a line of `journalctl --output=json`; None for one that is no entry with a message."""
    try:
        data: Any = json.loads(line)
        said = data["MESSAGE"]
        # The journal gives text that is not clean as a list of bytes.
        message = bytes(said).decode("utf-8", "replace") if isinstance(said, list) else str(said)
        time = int(data["__REALTIME_TIMESTAMP"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # hg prints its lines by the name of the program; a service that prints its own has a unit.
    unit = str(data.get("_SYSTEMD_UNIT", "")).removesuffix(".service")
    identifier = str(data.get("SYSLOG_IDENTIFIER", ""))
    is_printed = data.get("_TRANSPORT") == "stdout"
    source = (unit if is_printed else identifier) or unit or identifier
    return Entry(time, str(data.get("_HOSTNAME", "")), source, message, fields_of(message))


def of_request_log(line: bytes, host: str, source: str) -> Entry | None:
    """Read a line of a log of requests, in JSON; None for one that is no request."""
    message = line.decode("utf-8", "replace").rstrip("\n")
    found = fields_of(message)
    try:
        if "ended" in found:
            seconds = float(found["ended"])
        else:
            seconds = datetime.fromisoformat(found["time"]).timestamp()
        time = round(seconds * MICROSECONDS)
        stamp(time)
    except (KeyError, ValueError, OverflowError, OSError):
        return None
    return Entry(time, host, source, message, found)

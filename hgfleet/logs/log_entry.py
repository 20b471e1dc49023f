"""Entries of logs: a common form for lines of the journal and of request logs. Pure.

A message consists of fields in `key=value` (`hgfleet.core.logfmt`), of fields in JSON (the proxy,
nginx, the web workers), or of a sentence. Clients control much of its text, so it is parsed as
hostile input: a message has fields only if the whole message has that form.
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
"""The name of a push: the identity of its repository, and its number in that repository."""

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
        """The id of the session or request, "" if the entry has none."""
        return trace.accepted(self.fields.get("id"))

    @property
    def push(self) -> str:
        """The name of the push, "" if the entry has none."""
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
    """Return the fields of a message; a sentence has none."""
    if message.startswith("{"):
        return _of_json(message)
    if not message.startswith("event="):
        return {}
    fields: dict[str, str] = {}
    end = 0
    while end < len(message):
        match = _FIELD.match(message, end)
        if match is None or match[1] in fields:
            return {}
        fields[match[1]] = _plain(match[2])
        end = match.end()
    return fields


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
    """Parse a line of `journalctl --output=json`; None if it is no entry with a message."""
    try:
        data: Any = json.loads(line)
        text = data["MESSAGE"]
        # The journal renders a message with unprintable characters as a list of bytes.
        message = bytes(text).decode("utf-8", "replace") if isinstance(text, list) else str(text)
        time = int(data["__REALTIME_TIMESTAMP"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # hg logs under the name of its program; a service that prints its lines has a unit.
    unit = str(data.get("_SYSTEMD_UNIT", "")).removesuffix(".service")
    identifier = str(data.get("SYSLOG_IDENTIFIER", ""))
    is_printed = data.get("_TRANSPORT") == "stdout"
    source = (unit if is_printed else identifier) or unit or identifier
    return Entry(time, str(data.get("_HOSTNAME", "")), source, message, fields_of(message))


def of_request_log(line: bytes, host: str, source: str) -> Entry | None:
    """Parse a line of a request log, in JSON; None if it is no request."""
    message = line.decode("utf-8", "replace").rstrip("\n")
    fields = fields_of(message)
    try:
        if "ended" in fields:
            seconds = float(fields["ended"])
        else:
            seconds = datetime.fromisoformat(fields["time"]).timestamp()
        time = round(seconds * MICROSECONDS)
        stamp(time)
    except (KeyError, ValueError, OverflowError, OSError):
        return None
    return Entry(time, host, source, message, fields)

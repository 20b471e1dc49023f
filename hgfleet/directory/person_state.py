"""The protocol of `hgfleet-people`: whether a person is enabled, and with which groups and keys.

    {"person": "alice"}
    {"state": "enabled", "id": "b862b310-7ccc-103d-...", "groups": ["maintainers"],
     "keys": ["SHA256:..."]}
    {"state": "disabled", "id": "..."}   an operator has disabled the person
    {"state": "missing"}                 the directory has no such person
    {"state": "unclear"}                 an entry that admits no person: two of a name, for example
    {"state": "unavailable"}             no server of the directory answers

`id` is the entryUUID of the person's entry; it is missing where the server does not give it.

Sessions run as a user that cannot read the secret of the directory. So the daemon asks on their
behalf, as the user of the key lookup. Both ends check each other's lines.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from hgfleet.core import names
from hgfleet.core.daemons.line_server import ProtocolError, read_object, receive_line, write_line
from hgfleet.core.errors import UnavailableError
from hgfleet.directory import publickey
from hgfleet.directory.entries import MAX_GROUPS

SOCKET: Final = "/run/hgfleet-people/socket"

LONGEST_QUESTION: Final = 128
"""Bytes of a line; a name has at most 32."""

LONGEST_ANSWER: Final = 65536
"""Bytes of a line: 200 groups with names of 64 characters, and 900 keys."""

MOST_KEYS: Final = 900

PATIENCE_S: Final = 5.0
"""How long a client waits for an answer (seconds): two servers that time out take 4. A push that
asks has the lock of its repository."""

ENABLED: Final = "enabled"
DISABLED: Final = "disabled"
MISSING: Final = "missing"
UNCLEAR: Final = "unclear"
STATES: Final = (ENABLED, DISABLED, MISSING, UNCLEAR)
_UNAVAILABLE: Final = "unavailable"


@dataclass(frozen=True, slots=True)
class PersonState:
    """The directory's answer about a name; `keys` are fingerprints of keys that logins accept."""

    state: str
    groups: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    person_id: str = ""
    """The id of an enabled or disabled person; "" if the server does not give it."""


def write_question(person: str) -> bytes:
    """Render a question; raise ProtocolError for a text that cannot be a name."""
    if not names.is_person(person):
        raise ProtocolError("not the name of a person")
    return write_line({"person": person})


def read_question(line: bytes) -> str:
    """Return the name that a line asks about; raise ProtocolError."""
    data = read_object(line)
    person = data.get("person")
    if set(data) != {"person"} or not isinstance(person, str) or not names.is_person(person):
        raise ProtocolError("not a question about a person")
    return person


def write_answer(person: PersonState | None) -> bytes:
    """Render an answer; None: no server of the directory answers."""
    if person is None:
        return write_line({"state": _UNAVAILABLE})
    own = {"id": person.person_id} if person.person_id else {}
    if person.state != ENABLED:
        return write_line({"state": person.state, **own})
    # If an answer has no room for all keys of a person, the first keys are kept.
    keys = sorted(person.keys)[:MOST_KEYS]
    return write_line({"state": ENABLED, **own, "groups": sorted(person.groups), "keys": keys})


def read_answer(line: bytes) -> PersonState | None:
    """Check a line of the daemon; raise ProtocolError."""
    data = read_object(line)
    state = data.get("state")
    if state == _UNAVAILABLE:
        return None
    if state not in STATES:
        raise ProtocolError("an unknown state")
    # The daemon of an older release sends no id.
    person_id = data.get("id", "")
    if person_id and not names.is_person_id(person_id):
        raise ProtocolError("an id that is not a person id")
    if state != ENABLED:
        return PersonState(state, person_id=person_id)
    groups = _texts(data, "groups", MAX_GROUPS)
    keys = _texts(data, "keys", MOST_KEYS)
    if not all(map(names.is_group, groups)) or not all(map(publickey.is_fingerprint, keys)):
        raise ProtocolError("a malformed group or key")
    return PersonState(ENABLED, groups, keys, person_id)


def ask(person: str, path: str = SOCKET, patience: float = PATIENCE_S) -> PersonState:
    """Ask the daemon about a person; raise UnavailableError without an answer in that time."""
    until = time.monotonic() + patience
    try:
        question = write_question(person)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            connection.sendall(question)
            current = read_answer(receive_line(connection, LONGEST_ANSWER, until))
    except (OSError, ProtocolError) as error:
        raise UnavailableError(f"{path}: {error}") from error
    if current is None:
        raise UnavailableError(f"{path}: no server of the directory answers")
    return current


def _texts(data: dict[str, Any], name: str, most: int) -> frozenset[str]:
    texts = data.get(name)
    if not isinstance(texts, list) or len(texts) > most:
        raise ProtocolError(f"{name} is not a list")
    if not all(isinstance(text, str) for text in texts):
        raise ProtocolError(f"{name} are not texts")
    return frozenset(texts)

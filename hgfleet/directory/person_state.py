"""Whether a person is enabled, and with which groups and keys: the protocol of `hgfleet-people`.

    {"person": "alice"}
    {"state": "enabled", "id": "b862b310-7ccc-103d-...", "groups": ["maintainers"],
     "keys": ["SHA256:..."]}
    {"state": "disabled", "id": "..."}   an operator has disabled the person
    {"state": "missing"}                 the directory has no such person
    {"state": "unclear"}                 an entry that admits no person: two of a name, for example
    {"state": "unavailable"}             no server of the directory answers

`id` is the entryUUID of the person's entry; it is missing where the server does not give it.

Sessions run as a user that cannot read the secret of the directory. So the daemon asks for them, as
the user of the key lookup. Both ends check the lines of the other.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from hgfleet.core import names
from hgfleet.core.errors import UnavailableError
from hgfleet.core.line_server import ProtocolError, read_object, receive_line, write_line
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
    """What the directory says about a name; `keys` are fingerprints of keys that let in."""

    state: str
    groups: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    person_id: str = ""
    """Of an enabled or disabled person; "" where the server does not give it."""


def write_question(person: str) -> bytes:
    """Render a question; raise ProtocolError for what cannot be a name."""
    if not names.is_person(person):
        raise ProtocolError("no name of a person")
    return write_line({"person": person})


def read_question(line: bytes) -> str:
    """Return the name that a line asks about; raise ProtocolError."""
    data = read_object(line)
    person = data.get("person")
    if set(data) != {"person"} or not isinstance(person, str) or not names.is_person(person):
        raise ProtocolError("no question about a person")
    return person


def write_answer(found: PersonState | None) -> bytes:
    """Render an answer; None: no server of the directory answers."""
    if found is None:
        return write_line({"state": _UNAVAILABLE})
    own = {"id": found.person_id} if found.person_id else {}
    if found.state != ENABLED:
        return write_line({"state": found.state, **own})
    # A person with more keys than an answer has room for keeps those that come first.
    keys = sorted(found.keys)[:MOST_KEYS]
    return write_line({"state": ENABLED, **own, "groups": sorted(found.groups), "keys": keys})


def read_answer(line: bytes) -> PersonState | None:
    """Check a line of the daemon; raise ProtocolError."""
    data = read_object(line)
    state = data.get("state")
    if state == _UNAVAILABLE:
        return None
    if state not in STATES:
        raise ProtocolError("an unknown state")
    # A daemon of the release before says none.
    person_id = data.get("id", "")
    if person_id and not names.is_person_id(person_id):
        raise ProtocolError("an id of a person that is none")
    if state != ENABLED:
        return PersonState(state, person_id=person_id)
    groups = _texts(data, "groups", MAX_GROUPS)
    keys = _texts(data, "keys", MOST_KEYS)
    if not all(map(names.is_group, groups)) or not all(map(publickey.is_fingerprint, keys)):
        raise ProtocolError("a group or key that is none")
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
            found = read_answer(receive_line(connection, LONGEST_ANSWER, until))
    except (OSError, ProtocolError) as error:
        raise UnavailableError(f"{path}: {error}") from error
    if found is None:
        raise UnavailableError(f"{path}: no server of the directory answers")
    return found


def _texts(data: dict[str, Any], name: str, most: int) -> frozenset[str]:
    found = data.get(name)
    if not isinstance(found, list) or len(found) > most:
        raise ProtocolError(f"{name} are no list")
    if not all(isinstance(text, str) for text in found):
        raise ProtocolError(f"{name} are no texts")
    return frozenset(found)

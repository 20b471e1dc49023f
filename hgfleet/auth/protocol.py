r"""The protocol between web workers and the daemon: a line of JSON each way, then the end.

    {"user": "alice", "secret": "...", "client": "192.0.2.7"}
    {"answer": "person", "name": "alice", "id": "b862b310-7ccc-103d-...",
     "groups": ["maintainers"], "via": "token"}
    {"answer": "refused"}                         a wrong name or secret, or a disabled person
    {"answer": "throttled", "seconds": 12}        not checked; may be tried again after that
    {"answer": "unavailable"}                     the directory cannot be asked right now

Both ends belong to the service, yet each checks the other's lines: a question carries text of an
anonymous client, and the answer decides who may read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from hgfleet.core import names
from hgfleet.core.daemons.line_server import ProtocolError as ProtocolError
from hgfleet.core.daemons.line_server import read_object, write_line

SOCKET: Final = "/run/hgfleet-auth/socket"

LONGEST_QUESTION: Final = 8192
"""Bytes of a line; JSON writes a character of a secret in up to 6 bytes."""

LONGEST_ANSWER: Final = 32768
"""Bytes of a line: 200 groups with names of 64 characters are 14 KB."""

MOST_SECRET: Final = 1024
MOST_USER: Final = 256
MOST_CLIENT: Final = 64
"""Characters."""


MOST_AFTER: Final = 10.0
"""Seconds until a refusal is passed on, at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """A name and a secret of an anonymous client, and its address."""

    user: str
    secret: str
    client: str

    def __repr__(self) -> str:
        # A secret must not get into a traceback or a log by accident.
        return f"Question(user={self.user!r}, client={self.client!r})"


@dataclass(frozen=True, slots=True)
class Person:
    """An enabled person, with the groups of the directory; `via` is "password" or "token"."""

    name: str
    groups: frozenset[str]
    via: str
    person_id: str = ""
    """The entryUUID; "" if the directory does not give it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal, the same for a wrong name, a wrong secret and a disabled person.

    The client gets it `after` seconds, so that its time reveals nothing either.
    """

    after: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Throttled:
    """Not checked; may be tried again after that many seconds."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The daemon cannot decide right now."""


Answer = Person | Refused | Throttled | Unavailable


def write_question(question: Question) -> bytes:
    """Render a question. Raises ProtocolError if it is longer than any valid question."""
    if (
        len(question.user) > MOST_USER
        or len(question.secret) > MOST_SECRET
        or len(question.client) > MOST_CLIENT
    ):
        raise ProtocolError("the question is too long")
    return write_line({"user": question.user, "secret": question.secret, "client": question.client})


def read_question(line: bytes) -> Question:
    """Check a line of a worker; raises ProtocolError."""
    data = _parse(line, LONGEST_QUESTION)
    question = Question(_text(data, "user"), _text(data, "secret"), _text(data, "client"))
    if set(data) != {"user", "secret", "client"}:
        raise ProtocolError("a question with other fields")
    if len(question.user) > MOST_USER or len(question.secret) > MOST_SECRET:
        raise ProtocolError("a question that is too long")
    return question


def write_answer(answer: Answer) -> bytes:
    """Render an answer."""
    match answer:
        case Person(name, groups, via, person_id):
            fields = {"answer": "person", "name": name, "groups": sorted(groups), "via": via}
            return write_line({**fields, "id": person_id} if person_id else fields)
        case Throttled(seconds):
            return write_line({"answer": "throttled", "seconds": seconds})
        case Refused(after):
            return write_line({"answer": "refused", "after": after})
        case Unavailable():
            return write_line({"answer": "unavailable"})


def read_answer(line: bytes) -> Answer:
    """Check a line of the daemon; raises ProtocolError."""
    data = _parse(line, LONGEST_ANSWER)
    match data.get("answer"):
        case "person":
            groups = data.get("groups")
            if not isinstance(groups, list) or not all(isinstance(name, str) for name in groups):
                raise ProtocolError("groups are not a list of names")
            name = _text(data, "name")
            if not name:
                raise ProtocolError("a person without a name")
            # The daemon of an older release sends no id.
            person_id = data.get("id", "")
            if person_id and not names.is_person_id(person_id):
                raise ProtocolError("an id that is not a person id")
            return Person(name, frozenset(groups), _text(data, "via"), person_id)
        case "refused":
            # The daemon of an older release waits itself.
            after = data.get("after", 0.0)
            if isinstance(after, bool) or not isinstance(after, int | float):
                raise ProtocolError("after is not a number")
            if not 0 <= after <= MOST_AFTER:
                raise ProtocolError("after is not a time to wait")
            return Refused(float(after))
        case "throttled":
            seconds = data.get("seconds")
            if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 0:
                raise ProtocolError("seconds are not a number")
            return Throttled(seconds)
        case "unavailable":
            return Unavailable()
    raise ProtocolError("an unknown answer")


def _parse(line: bytes, most: int) -> dict[str, Any]:
    if len(line) > most:
        raise ProtocolError("the line is too long")
    return read_object(line)


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ProtocolError(f"{name} is not a text")
    return value

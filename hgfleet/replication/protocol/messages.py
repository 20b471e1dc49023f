"""Messages of replication: names of streams and subjects, and the contents of messages. Pure.

| subject | from | to | content |
| --- | --- | --- | --- |
| `hgfleet.pushes.IDENTITY` | relay | stream `hgfleet-pushes` | a record, its changegroup |
| `hgfleet.documents.NAME` | relay | stream `hgfleet-documents` | a hint: a document changed |
| `hgfleet.epoch` | relay, promotion | stream `hgfleet-epoch` | a term: epoch, primary, address |
| `hgfleet.leases.MIRROR` | applier | relay | a heartbeat: the mirror is alive, and its progress |
| `hgfleet.confirmed.MIRROR` | relay | applier | a heartbeat arrived: the lease is extended |
| `hgfleet.applied.MIRROR` | applier | relay | a push, or a document, is on the mirror |
| `hgfleet.asked.MIRROR` | relay | applier | which pushes of some repositories the mirror shows |
| `hgfleet.events.IDENTITY` | relay | stream `hgfleet-events` | pushes that all live mirrors show |

IDENTITY is the identity of a repository. A message of a push has the id
"IDENTITY.NUMBER.EPOCH.HASH", with the first digits of the record's hash. So the broker drops a
second copy, but never another push with the same number. The event of the push has the same id, in
its own stream. The previous release wrote "IDENTITY.NUMBER", or after a promotion
"IDENTITY.NUMBER.EPOCH". If a record is too large for a message, its message has an empty body, and
mirrors fetch the record from the source. Messages are parsed as hostile input.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hgfleet.core import trace
from hgfleet.core.errors import PushlogError
from hgfleet.core.names import path_problem
from hgfleet.pushlog.record import hash_of, is_hash, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hgfleet.pushlog.record import Record

_Kind = TypeVar("_Kind")

PUSHES: Final = "hgfleet-pushes"
DOCUMENTS: Final = "hgfleet-documents"
EVENTS: Final = "hgfleet-events"
EPOCHS: Final = "hgfleet-epoch"

EPOCH: Final = "hgfleet.epoch"
"""The only subject of the stream of terms."""

MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"
HASH_HEADER: Final = "Hgfleet-Hash"
"""Header with the hash of a record. Number and hash together name a push, because the number may be
used again after a restore. Messages of the previous release have no such header."""

PATH_HEADER: Final = "Hgfleet-Path"
"""Header with the repository's path at the publication, for logs and for the previous release."""
REGISTRY_HEADER: Final = "Hgfleet-Registry"
SESSION_HEADER: Final = "Hgfleet-Session"

MAX_PAYLOAD: Final = 512 * 1024
"""Most bytes of a changegroup, or of a document, in a message; mirrors fetch larger data."""

MOST_ASKED: Final = 500
"""Most repositories in a question to a mirror."""

MOST_UNSENT: Final = 100
"""Repositories that one confirmation names; the next one names others."""

ID_DIGITS: Final = 16
"""Digits of the hash in the id of a message."""

_ID: Final = re.compile(r"([0-9a-f]{32})\.([0-9]{1,18})(?:\.([0-9]{1,10})(?:\.[0-9a-f]{16})?)?")
ID_FORMAT: Final = 2
"""Format of written ids: with epoch and hash. Ids of format 1 have no hash, and have an epoch only
after the first promotion."""

_UNSENT: Final = re.compile(r"([0-9a-f]{32})\.([0-9]{1,18})\.([0-9a-f]{64})")
_STAMP: Final = re.compile(r"none|[0-9a-f]{16}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,251}")


def pushes(identity: str) -> str:
    """Return the subject of the pushes to a repository."""
    return f"hgfleet.pushes.{identity}"


def documents(name: str) -> str:
    """Return the subject of a document; its name is encoded, as it may have dots and slashes."""
    return f"hgfleet.documents.{name.encode('utf-8').hex()}"


def events(identity: str) -> str:
    """Return the subject of the events of a repository."""
    return f"hgfleet.events.{identity}"


def leases(host: str) -> str:
    """Return the subject of a mirror's heartbeats."""
    return f"hgfleet.leases.{token(host)}"


def confirmed(host: str) -> str:
    """Return the subject on which the relay confirms a mirror's heartbeats."""
    return f"hgfleet.confirmed.{token(host)}"


def applied(host: str) -> str:
    """Return the subject on which a mirror reports the pushes that it shows."""
    return f"hgfleet.applied.{token(host)}"


def asked(host: str) -> str:
    """Return the subject on which the relay asks a mirror which pushes it shows."""
    return f"hgfleet.asked.{token(host)}"


def token(host: str) -> str:
    """Return a host's name as a token of a subject."""
    made = host.replace(".", "_")
    if not _NAME.fullmatch(made):
        raise ValueError(f"{host!r} is no host name")
    return made


class LargeRecordError(PushlogError):
    """A message stands for a record that is too large for it; mirrors fetch it from the source."""

    def __init__(
        self, path: str, repository: str, number: int, session: str = "", hash_: str = ""
    ) -> None:
        super().__init__(f"record {number} of {path} is too large for a message")
        self.path, self.repository, self.number = path, repository, number
        self.session, self.hash = session, hash_


@dataclass(frozen=True, slots=True)
class PushMessage:
    """A push: the repository's path at that time, the line of its record, and its changesets.

    `changegroup` is a changegroup of version 03 of exactly the record's changesets, compressed with
    zlib; it is empty if the record has no changesets, or if it is larger than MAX_PAYLOAD.
    `registry` is the stamp of the primary's dynamic registry at the publication, `session` the id
    of the session that pushed, for logs; either is "" if it is not known.
    """

    path: str
    line: bytes
    record: Record
    changegroup: bytes = b""
    registry: str = ""
    session: str = ""

    @property
    def id(self) -> str:
        """The id by which the broker drops a second copy."""
        return message_id(self.record, self.hash)

    @property
    def hash(self) -> str:
        """The hash of the record."""
        return hash_of(self.line)

    def headers(self) -> dict[str, str]:
        """Return the headers of the message."""
        known = {REGISTRY_HEADER: self.registry, SESSION_HEADER: self.session}
        more = {name: value for name, value in known.items() if value}
        return {MESSAGE_ID_HEADER: self.id, HASH_HEADER: self.hash, PATH_HEADER: self.path, **more}

    def body(self) -> bytes:
        """Return the body: the line, a line feed, the changegroup."""
        return self.line + b"\n" + self.changegroup


def push_name(repository: str, number: int) -> str:
    """Return the name of a push in logs: the identity of its repository, and its number there."""
    return f"{repository}.{number}"


def message_id(record: Record, hash_: str) -> str:
    """Return the id of the messages about a push, in each stream; `hash_` is the record's hash."""
    return f"{push_name(record.repository, record.id)}.{record.epoch}.{hash_[:ID_DIGITS]}"


def named(headers: Mapping[str, str] | None) -> tuple[str, int, int] | None:
    """Return identity, number and epoch of the push that a message's id names, or None.

    The id of the previous release has no epoch before the first promotion.
    """
    match = _ID.fullmatch((headers or {}).get(MESSAGE_ID_HEADER, ""))
    return (match[1], int(match[2]), int(match[3] or 1)) if match else None


def decode_push(headers: Mapping[str, str] | None, body: bytes) -> PushMessage:
    """Read a message of a push; raises PushlogError, LargeRecordError if it has no record."""
    path = (headers or {}).get(PATH_HEADER, "")
    if path_problem(path):
        raise PushlogError(f"a message has {path!r:.80}, expected the path of a repository")
    session = trace.accepted((headers or {}).get(SESSION_HEADER))
    if not body and (push := named(headers)):
        raise LargeRecordError(path, push[0], push[1], session, hash_in(headers))
    line, _, changegroup = body.partition(b"\n")
    stamp = (headers or {}).get(REGISTRY_HEADER, "")
    known = stamp if is_stamp(stamp) else ""
    return PushMessage(path, line, parse(line), changegroup, known, session)


def hash_in(headers: Mapping[str, str] | None) -> str:
    """Return the hash of the record that a message names; empty if it names none."""
    text = (headers or {}).get(HASH_HEADER, "")
    return text if is_hash(text) else ""


def is_stamp(value: object) -> bool:
    """Whether a value from another host is the stamp of a registry."""
    return isinstance(value, str) and _STAMP.fullmatch(value) is not None


class _Told:
    """A message of a mirror or the relay: a JSON object of its fields."""

    __slots__ = ()

    def body(self) -> bytes:
        """Return the body of the message."""
        data = asdict(self)  # type: ignore[call-overload]  # a dataclass
        return json.dumps(data).encode("ascii")


@dataclass(frozen=True, slots=True)
class Lease(_Told):
    """A heartbeat of a mirror. `sent` is in seconds since 1970 by the mirror's clock.

    `waiting` counts pushes that arrived and are not applied yet, `parked` repositories that wait
    for an operator or a repair.
    """

    host: str
    boot: str
    caught_up: bool
    waiting: int
    parked: int
    sent: float


@dataclass(frozen=True, slots=True)
class Confirmed(_Told):
    """Confirmation of a heartbeat: the lease lasts for `lease_seconds` from its `sent` on.

    `boot` and `sent` are those of the heartbeat, so the mirror's own clock decides. `member` says
    whether pushes wait for the mirror. `unsent` names the last push of repositories whose pushes
    wait for the broker for a while, as IDENTITY.NUMBER.HASH: a mirror fetches them from the source.
    A relay of the release before names none.
    """

    host: str
    boot: str
    sent: float
    lease_seconds: float
    member: bool
    unsent: tuple[str, ...] = ()

    def pushes(self) -> Iterator[tuple[str, int, str]]:
        """Yield identity, number and hash of the pushes that wait; others are passed over."""
        for found in filter(None, map(_UNSENT.fullmatch, self.unsent[:MOST_UNSENT])):
            yield found[1], int(found[2]), found[3]


@dataclass(frozen=True, slots=True)
class Applied:
    """Push `id` of a repository, and all before it, are visible on a mirror.

    `hash` is the hash of its record, empty in a message of the previous release. It is in a header,
    because a relay of that release accepts no other fields.
    """

    host: str
    repository: str
    id: int
    hash: str = ""

    def headers(self) -> dict[str, str]:
        """Return the headers of the message."""
        return {HASH_HEADER: self.hash} if self.hash else {}

    def body(self) -> bytes:
        """Return the body of the message."""
        told = {"host": self.host, "repository": self.repository, "id": self.id}
        return json.dumps(told).encode("ascii")


@dataclass(frozen=True, slots=True)
class Hint(_Told):
    """Hint that a document changed before `number`, which counts in the relay's run `boot`."""

    boot: str
    number: int


@dataclass(frozen=True, slots=True)
class Brought(_Told):
    """A mirror has a document as it was at a hint, or later."""

    host: str
    document: str
    boot: str
    number: int


@dataclass(frozen=True, slots=True)
class Asked(_Told):
    """Question of the relay which push a mirror shows of these repositories, by identity."""

    repositories: tuple[str, ...]


def decode_hint(body: bytes) -> Hint:
    """Read a hint; raises ValueError."""
    return _made(Hint, _object(body))


def decode_lease(body: bytes) -> Lease:
    """Read a heartbeat; raises ValueError."""
    return _made(Lease, _object(body))


def decode_confirmed(body: bytes) -> Confirmed:
    """Read a confirmation; raises ValueError."""
    found = _made(Confirmed, _object(body))
    return replace(found, unsent=tuple(found.unsent))


def decode_applied(body: bytes, headers: Mapping[str, str] | None = None) -> Applied | Brought:
    """Read which pushes a mirror shows; raises ValueError."""
    data = _object(body)
    if "document" in data:
        return _made(Brought, data)
    return _made(Applied, data | {"hash": hash_in(headers)})


def decode_asked(body: bytes) -> Asked:
    """Read a question of the relay; raises ValueError."""
    asked_for = _made(Asked, _object(body)).repositories
    return Asked(tuple(asked_for[:MOST_ASKED]))


_RIGHT: Final[dict[str, Callable[[Any], bool]]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int,
    "float": lambda value: isinstance(value, int | float),
    "tuple[str, ...]": lambda value: (
        isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    ),
}
"""Whether a value of JSON is right for a field of this type."""


def _made(kind: type[_Kind], data: dict[str, Any]) -> _Kind:
    """Make a message of its fields; fields that a later release adds are left out."""
    known = fields(kind)  # type: ignore[arg-type]  # a dataclass
    try:
        made = kind(**{part.name: data[part.name] for part in known if part.name in data})
    except TypeError as error:
        raise ValueError(f"got unexpected fields: {', '.join(data)!r:.200}") from error
    for part in known:
        if not _RIGHT[str(part.type)](getattr(made, part.name)):
            raise ValueError(
                f"{part.name}: got {getattr(made, part.name)!r:.200}, expected {part.type}"
            )
    return made


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {body!r:.200}") from error
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise ValueError(f"no object: {body!r:.200}")
    return data

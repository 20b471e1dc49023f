"""Records of the push log: each is a line of JSON, with the hash of the line before.

    {"bookmarks":[["@",null,"5f..."]],"changesets":["5f..."],"client":"192.0.2.7","epoch":1,
     "heads":{"digest":"9a...","gone":["00..."],"new":["5f..."]},"id":2,"key":"SHA256:...",
     "kind":"push","markers":[],"phases":[["5f...",null,"public"]],"previous":"c1...",
     "repository":"7d...","time":1795440000123,"user":"alice","v":1,"verdicts":{}}

The text of a record is canonical (sorted keys, ASCII, no spaces): a mirror appends the line as it
arrived, so all hosts have the same bytes, and a single hash names the whole history. A host reads
lines from its own disk and from another host; both are parsed as hostile input.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import PushlogError
from hgfleet.core.identity import is_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 1
FIRST: Final = "0" * 64
"""`previous` of the first record of a chain."""

KINDS: Final = frozenset({"push", "adoption", "strip"})
"""A push; the record for all changesets from before the log; the removal of changesets."""

PHASES: Final = ("public", "draft", "secret", "archived", "internal")

_NODE: Final = re.compile(r"[0-9a-f]{40}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MARKER: Final = re.compile(r"(?:[0-9a-f]{2})+")
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{0,256}")

Node = str
"""40 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads that a push removed and added, and a digest of all heads after it."""

    gone: tuple[Node, ...] = ()
    new: tuple[Node, ...] = ()
    digest: str = ""

    @staticmethod
    def digest_of(heads: Iterable[Node]) -> str:
        """Return sha256 of the sorted heads, each on its own line."""
        return hashlib.sha256("\n".join(sorted(heads)).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `time` is in milliseconds since 1970, UTC."""

    id: int
    repository: str
    kind: str
    user: str
    time: int
    previous: str
    key: str = ""
    """Fingerprint of the key ("SHA256:..."), "certificate:" and its name, or nothing."""
    client: str = ""
    """Address of the client; empty for operators."""
    epoch: int = 1
    """Number of the primary's term, raised by each promotion of a mirror."""
    changesets: tuple[Node, ...] = ()
    """In the order of the primary, parents first. Empty in an adoption, which covers all others."""
    heads: Heads = field(default_factory=Heads)
    phases: tuple[tuple[Node, str | None, str], ...] = ()
    """(changeset, phase before, phase after); before is None for a new changeset."""
    bookmarks: tuple[tuple[str, Node | None, Node | None], ...] = ()
    """(name, before, after); None: the bookmark does not exist."""
    markers: tuple[str, ...] = ()
    """Obsolescence markers, hexadecimal, each as obsolete.encodemarkers has it (version 1)."""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """The verdict of each policy."""

    def line(self) -> bytes:
        """Return the canonical line, without the line feed."""
        data: dict[str, Any] = {
            "v": VERSION,
            "id": self.id,
            "repository": self.repository,
            "kind": self.kind,
            "user": self.user,
            "time": self.time,
            "previous": self.previous,
            "key": self.key,
            "client": self.client,
            "epoch": self.epoch,
            "changesets": self.changesets,
            "heads": {
                "gone": self.heads.gone,
                "new": self.heads.new,
                "digest": self.heads.digest,
            },
            "phases": self.phases,
            "bookmarks": self.bookmarks,
            "markers": self.markers,
            "verdicts": dict(self.verdicts),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def hash_of(line: bytes) -> str:
    """Return the hash by which the next record names this line."""
    return hashlib.sha256(line).hexdigest()


def is_hash(text: object) -> bool:
    """Whether a value can be the hash of a record."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def parse(line: bytes) -> Record:
    """Parse a line; raises PushlogError, whose sentence names the problem."""
    try:
        data = json.loads(line)
        if not isinstance(data, dict) or data.get("v") != VERSION:
            version = data.get("v") if isinstance(data, dict) else None
            raise PushlogError(
                f"a record has version {version!r}, expected {VERSION}; a newer release wrote it"
            )
        record = _record(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PushlogError(
            f"a line is not a record of the push log ({type(error).__name__}: {error})"
        ) from error
    if record.line() != line:
        raise PushlogError(f"record {record.id} is not in its canonical form")
    return record


def _record(data: Mapping[str, Any]) -> Record:
    heads = data["heads"]
    return Record(
        id=_number(data["id"], 1),
        repository=_identity(data["repository"]),
        kind=_one_of(KINDS, data["kind"]),
        user=_match(_PRINTABLE, data["user"]),
        time=_number(data["time"], 0),
        previous=_match(_HASH, data["previous"]),
        key=_match(_PRINTABLE, data["key"]),
        client=_match(_PRINTABLE, data["client"]),
        epoch=_number(data["epoch"], 1),
        changesets=_nodes(data["changesets"]),
        heads=Heads(_nodes(heads["gone"]), _nodes(heads["new"]), _match(_HASH, heads["digest"])),
        phases=tuple(
            (
                _match(_NODE, node),
                None if old is None else _one_of(PHASES, old),
                _one_of(PHASES, new),
            )
            for node, old, new in _list(data["phases"])
        ),
        bookmarks=tuple(
            (_text(name), _node_or_none(old), _node_or_none(new))
            for name, old, new in _list(data["bookmarks"])
        ),
        markers=tuple(_match(_MARKER, marker) for marker in _list(data["markers"])),
        verdicts={_text(name): _text(verdict) for name, verdict in data["verdicts"].items()},
    )


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is not a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def _match(pattern: re.Pattern[str], value: object) -> str:
    text = _text(value)
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r:.80} does not fit")
    return text


def _identity(value: object) -> str:
    if not is_identity(value):
        raise ValueError(f"{value!r:.80} is not the identity of a repository")
    return str(value)


def _one_of(allowed: Iterable[str], value: object) -> str:
    text = _text(value)
    if text not in allowed:
        raise ValueError(f"{text!r:.80} is none of {', '.join(sorted(allowed))}")
    return text


def _number(value: object, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r:.40} is not a whole number from {least} on")
    return value


def _nodes(value: object) -> tuple[Node, ...]:
    return tuple(_match(_NODE, node) for node in _list(value))


def _node_or_none(value: object) -> Node | None:
    return None if value is None else _match(_NODE, value)

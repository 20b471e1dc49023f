"""Requests that mirrors send to the source, checked. Pure.

| request | answer |
| --- | --- |
| `GET /v1/repositories` | a JSON line for each: identity, path, id, hash; or a problem |
| `GET /v1/log?repository=I&after=ID` | the lines of its push log after that record |
| `GET /v1/state?repository=I` | digests of its state after its last record; `&full=1`: the state |
| `POST /v1/changesets?repository=I` | a changegroup of version 03, compressed with zlib |
| `GET /v1/registry` | `{"stamp": STAMP}`: which dynamic registry the primary has now |
| `GET /v1/documents?known=STAMP` | a stamp; if it differs, also a JSON line for each document |
| `GET /v1/documents/NAME` | the bytes of a document |

The body of a request for changesets is `{"nodes": [...]}`, for exactly these changesets, or
`{"heads": [...], "common": [...]}`, for the ancestors of heads that are not ancestors of common.

I is the identity of a repository; the registry has its path at this moment. A refusal is a sentence
with a status:

| status | means |
| --- | --- |
| 400, 405, 413 | the request makes no sense |
| 403 | the client is no mirror |
| 404 | no repository in service has this identity, or these changesets; no such document |
| 410 | the repository was deleted for good |
| 500 | this repository cannot be read now: its log or store is damaged, or it is being moved |
| 503 | the host has no answer about any repository now: try again |

Mirrors of the previous release name a repository by `path=P`. A deploy and a rollback change
mirrors before the primary, so these mirrors get an answer, from the repository that is at the path
now.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from hgfleet.core.errors import HgfleetError
from hgfleet.core.identity import is_identity
from hgfleet.core.names import path_problem

PREFIX: Final = "/v1/"
MAX_BODY: Final = 64 * 1024 * 1024
"""Most bytes of a body; a million nodes have 43 MB."""

MAX_ID: Final = 2**53
MAX_NAME: Final = 512
"""Most characters of a document's name."""

_NODE: Final = re.compile(r"[0-9a-f]{40}")
_NUMBER: Final = re.compile(r"[0-9]{1,16}")


class RefusedError(HgfleetError):
    """An answer other than success: its status of HTTP, and a sentence for the mirror's log.

    `allow` is the method that the address takes, with the status 405.
    """

    def __init__(self, status: int, sentence: str, allow: str = "") -> None:
        super().__init__(sentence)
        self.status, self.allow = status, allow


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `what` is the first word of its address.

    `identity` names a repository, `path` does so in a request of the previous release, `name` names
    a document, `known` is the stamp of the mirror's list; each is empty if the request has none.
    """

    what: str
    identity: str = ""
    path: str = ""
    after: int = 0
    full: bool = False
    name: str = ""
    known: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Changesets that a mirror requests: `nodes`, or ancestors of `heads` beyond `common`."""

    nodes: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    common: tuple[str, ...] = ()

    def body(self) -> bytes:
        """Return the body of the request."""
        if self.nodes:
            return json.dumps({"nodes": self.nodes}).encode("ascii")
        return json.dumps({"heads": self.heads, "common": self.common}).encode("ascii")


def parse(method: str, target: str) -> Request:
    """Read the target of a request; raises RefusedError."""
    parts = urlsplit(target)
    if not parts.path.startswith(PREFIX):
        raise RefusedError(404, f"got {parts.path!r:.80}, expected an address below {PREFIX}")
    what, _, rest = parts.path[len(PREFIX) :].partition("/")
    expected = "POST" if what == "changesets" else "GET"
    if what not in _FIELDS or (rest and what != "documents"):
        raise RefusedError(404, f"got {parts.path!r:.80}, expected one of {', '.join(_FIELDS)}")
    if method != expected:
        raise RefusedError(405, f"got {method!r:.20}, expected {expected}", allow=expected)
    fields = _fields(what, parts.query)
    if what in ("repositories", "registry", "documents"):
        return Request(what, name=_document(rest), known=fields.get("known", "")[:MAX_NAME])
    identity, path = fields.get("repository", ""), fields.get("path", "")
    if path and not identity:
        if problem := path_problem(path):
            raise RefusedError(400, f"path: got {path!r:.80}, expected {problem}")
    elif path or not is_identity(identity):
        raise RefusedError(400, f"repository: got {identity!r:.80}, expected only its identity")
    return Request(
        *(what, identity, path),
        after=_number(fields.get("after", "0")),
        full=fields.get("full") == "1",
    )


_FIELDS: Final[dict[str, frozenset[str]]] = {
    "repositories": frozenset(),
    "registry": frozenset(),
    "log": frozenset({"repository", "path", "after"}),
    "state": frozenset({"repository", "path", "full"}),
    "changesets": frozenset({"repository", "path"}),
    "documents": frozenset({"known"}),
}


def _fields(what: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=4
        )
    except ValueError as error:
        raise RefusedError(400, f"got a query that cannot be read ({error})") from error
    fields = dict(pairs)
    if len(fields) != len(pairs) or not fields.keys() <= _FIELDS[what]:
        known = ", ".join(sorted(_FIELDS[what])) or "no fields"
        raise RefusedError(400, f"got the fields {', '.join(fields)!a:.80}, expected {known}")
    return fields


def _document(rest: str) -> str:
    name = unquote(rest, errors="surrogateescape")
    if len(name) > MAX_NAME or not name.isascii() or (name and not name.isprintable()):
        raise RefusedError(400, "got a name of a document that no document has")
    return name


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_ID:
        raise RefusedError(400, f"after: got {text!r:.40}, expected the number of a record")
    return int(text)


def parse_selection(body: bytes) -> Selection:
    """Read the body of a request for changesets; raises RefusedError."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "got a body that is not JSON") from error
    if not isinstance(data, dict):
        raise RefusedError(400, "got a body that is not a JSON object")
    if data.keys() == {"nodes"} and data["nodes"]:
        return Selection(nodes=_nodes("nodes", data["nodes"]))
    if data.keys() == {"heads", "common"} and data["heads"]:
        return Selection(
            heads=_nodes("heads", data["heads"]), common=_nodes("common", data["common"])
        )
    raise RefusedError(400, "expected changesets as nodes, or as heads and common")


def _nodes(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise RefusedError(400, f"{name}: expected a list of nodes")
    for node in value:
        if not isinstance(node, str) or not _NODE.fullmatch(node):
            raise RefusedError(400, f"{name}: got {node!r:.60}, expected 40 hexadecimal digits")
    return tuple(value)

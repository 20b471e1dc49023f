"""Documents: files other than repositories that mirrors have copies of. Pure.

| name | file |
| --- | --- |
| `registry` | the dynamic registry: user repositories and their readers |
| `tokens` | hashes of access tokens |
| `manifests/IDENTITY.manifest` | the clone bundle manifest of a repository |
| `pullbundles/IDENTITY/manifest` | the manifest of its pull bundles |
| `pullbundles/IDENTITY/SHA256.hg` | a pull bundle of it |

The previous release used the path of the repository in place of its identity. A mirror deletes such
documents, and fetches none from a primary of that release.

The order of a change protects privacy: readers change first, then withdrawn documents go, then new
content comes, and a manifest comes after the files that it names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HgfleetError
from hgfleet.core.files import repository_of
from hgfleet.core.identity import is_identity
from hgfleet.core.names import path_problem
from hgfleet.hg import wake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REGISTRY: Final = wake.REGISTRY
TOKENS: Final = wake.TOKENS
FIRST: Final = (REGISTRY, TOKENS)
"""Documents that say who may read: after a change, mirrors fetch them first, without the others."""

MANIFESTS: Final = "manifests/"
PULL_BUNDLES: Final = "pullbundles/"
SUFFIX: Final = ".manifest"
CHAIN: Final = "manifest"

MAX_SIZE: Final = 2**44
SMALL: Final = 64 * 1024 * 1024
"""Bytes of the largest document that is no pull bundle."""

_LINK: Final = re.compile(r"([0-9a-f]{64})\.hg")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class RefusedError(HgfleetError):
    """The primary's version of a document is older than this mirror's version, which stays."""


class Kind(IntEnum):
    """Kind of a document, in the order in which new documents are fetched."""

    REGISTRY = 0
    TOKENS = 1
    LINK = 2
    CHAIN = 3
    MANIFEST = 4
    FORMER = 5
    """Named by the previous release, after a path: nothing serves it, and it is deleted."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the source lists it; `size` is in bytes."""

    name: str
    sha256: str
    size: int

    def line(self) -> bytes:
        """Return the line of the list, without the line feed."""
        data = {"name": self.name, "sha256": self.sha256, "size": self.size}
        return json.dumps(data, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of a mirror, in their order: `registry`, then `delete`, then `fetch`."""

    registry: Document | None
    delete: tuple[str, ...]
    fetch: tuple[Document, ...]

    def __bool__(self) -> bool:
        return bool(self.registry or self.delete or self.fetch)


def kind_of(name: str) -> Kind | None:
    """Return the kind of a document; None for a name that no document has."""
    if name == REGISTRY:
        return Kind.REGISTRY
    if name == TOKENS:
        return Kind.TOKENS
    if name.startswith(MANIFESTS) and name.endswith(SUFFIX):
        named = name[len(MANIFESTS) : -len(SUFFIX)]
        return Kind.MANIFEST if is_identity(named) else _former(named)
    if name.startswith(PULL_BUNDLES):
        folder, _, file = name[len(PULL_BUNDLES) :].partition("/")
        kind = Kind.CHAIN if file == CHAIN else Kind.LINK
        if kind is Kind.LINK and not _LINK.fullmatch(file):
            return None
        return kind if is_identity(folder) else _former(repository_of(folder))
    return None


def _former(path: str) -> Kind | None:
    """Return the kind of a document that names a repository by its path."""
    return None if path_problem(path) else Kind.FORMER


def digest_in(name: str) -> str | None:
    """Return the sha256 in the name of a pull bundle; None for other documents."""
    match = _LINK.fullmatch(name.rpartition("/")[2])
    return match[1] if match and name.startswith(PULL_BUNDLES) and kind_of(name) else None


def parse_line(line: bytes) -> Document:
    """Read a line of the source's list; raises ValueError."""
    try:
        data = json.loads(line)
        document = Document(data["name"], data["sha256"], data["size"])
        kind = kind_of(document.name)
        right = (
            isinstance(document.sha256, str)
            and _SHA256.fullmatch(document.sha256)
            and type(document.size) is int
            and 0 <= document.size <= (MAX_SIZE if digest_in(document.name) else SMALL)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{line!r:.200} as a document") from error
    if kind is None or not right or digest_in(document.name) not in (None, document.sha256):
        raise ValueError(f"{line!r:.200} as a document")
    return document


def stamp_line(stamp: str) -> bytes:
    """Return the first line of the source's list, without the line feed."""
    return json.dumps({"stamp": stamp}).encode("ascii")


def parse_stamp(line: bytes) -> str:
    """Read the first line of the source's list; raises ValueError."""
    try:
        stamp = json.loads(line)["stamp"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{line!r:.200} as the stamp of its documents") from error
    if not isinstance(stamp, str) or not re.fullmatch(r"[0-9a-f]{0,64}", stamp):
        raise ValueError(f"{line!r:.200} as the stamp of its documents")
    return stamp


def plan(have: Mapping[str, str], want: Iterable[Document]) -> Plan:
    """Compare the documents of a mirror, by their sha256, with the documents of the primary.

    A registry that the primary does not list stays: without it private repositories would not be
    known as private.
    """
    wanted = {document.name: document for document in want}
    wanted = {name: new for name, new in wanted.items() if kind_of(name) is not Kind.FORMER}
    stale = {name: new for name, new in wanted.items() if have.get(name) != new.sha256}
    registry = stale.pop(REGISTRY, None)
    gone = [name for name in have if name not in wanted and name != REGISTRY]
    # A manifest leaves before the files that it names.
    gone.sort(key=lambda name: (digest_in(name) is not None, name))
    fetch = sorted(stale.values(), key=lambda new: (kind_of(new.name) or 0, new.name))
    return Plan(registry, tuple(gone), tuple(fetch))

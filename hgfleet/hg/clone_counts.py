"""Counts of clones and pulls by the source of their changesets, for metrics.

`hgext/clonecounts.py` finds the source of an answer. No text of a client or of a repository gets
into a count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

FILE: Final = "clones"
"""The file of the counts of SSH sessions, in the folder of counters."""

CLONE: Final = "clone"
PULL: Final = "pull"

CLONE_BUNDLE: Final = "clone-bundle"
PULL_BUNDLE: Final = "pull-bundle"
LIVE: Final = "live"

SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    CLONE: (CLONE_BUNDLE, PULL_BUNDLE, LIVE),
    PULL: (PULL_BUNDLE, LIVE),
}
"""Sources of a clone or pull; an object store sends the bytes of clone bundles."""


def kind_of(arguments: Mapping[bytes, bytes]) -> str | None:
    """Tell a clone from a pull by the arguments of a getbundle; None if it wants no changesets."""
    if _is_set(arguments.get(b"stream", b"0")):
        # Clients ask for streams, without a changegroup, only for whole repositories.
        return CLONE
    if not _is_set(arguments.get(b"cg", b"1")):
        return None
    return PULL if has_changesets(arguments) else CLONE


def has_changesets(arguments: Mapping[bytes, bytes]) -> bool:
    """Whether a client already has some changesets, by the arguments of its getbundle."""
    return any(node.strip(b"0") for node in arguments.get(b"common", b"").split())


def measured(pieces: Iterable[bytes], end: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the pieces of an answer; `end` gets their bytes, also if the client disconnects."""
    size = 0
    try:
        for piece in pieces:
            size += len(piece)
            yield piece
    finally:
        end(size)


def _is_set(value: bytes) -> bool:
    return value not in (b"", b"0")


def counts(kind: object, source: object, size: int) -> dict[str, float]:
    """Return the counts that an answer adds; none if a word is not among `SOURCES`."""
    if not isinstance(kind, str) or source not in SOURCES.get(kind, ()):
        return {}
    added = {f"{kind} {source}": 1.0}
    return added if source == CLONE_BUNDLE else {**added, f"{kind} {source} bytes": float(size)}


class Answers:
    """Clones and pulls that were answered, by kind and source, 0 included."""

    def __init__(self, data: Mapping[str, float]) -> None:
        self.counts = {
            (kind, source): float(data.get(f"{kind} {source}", 0))
            for kind, sources in SOURCES.items()
            for source in sources
        }
        self.bytes = {
            (kind, source): float(data.get(f"{kind} {source} bytes", 0))
            for kind, source in self.counts
            if source != CLONE_BUNDLE
        }

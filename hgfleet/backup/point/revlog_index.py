"""Index of a revlog: how much of it belongs to the first changesets of a repository. Pure.

Each revision of a file or manifest names the changeset that brought it (its link revision). A
transaction appends only revisions of its own changesets, so the revisions of all changesets before
it are a prefix of the file. Format: `hg help internals.revlogs`, version 1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY: Final = struct.Struct(">Qiiiiii20s12x")
"""Offset and flags, length, length of the text, base, link revision, parents, node."""

SIZE: Final = _ENTRY.size
_HEADER: Final = struct.Struct(">I")
_INLINE: Final = 1 << 16
_KNOWN_FLAGS: Final = _INLINE | 1 << 17
_VERSION: Final = 1


class Kept(NamedTuple):
    """The part of a revlog to keep: revisions, and the sizes of both files."""

    revisions: int
    index_bytes: int
    data_bytes: int
    is_inline: bool


class Changeset(NamedTuple):
    """A changeset of the changelog's index, with the numbers of its parents."""

    node: str
    parents: tuple[int, ...]


def is_inline(index: bytes) -> bool:
    """Whether the data of the revisions is in the index. Raises HostError for another format."""
    if len(index) < _HEADER.size:
        return False
    header = _HEADER.unpack_from(index)[0]
    if header & 0xFFFF != _VERSION or header & ~0xFFFF & ~_KNOWN_FLAGS:
        raise HostError(
            f"got a revlog with the header {header:#010x}, expected version {_VERSION}; "
            "`hgfleet storage upgrade` moves a repository to that format"
        )
    return bool(header & _INLINE)


def keep(index: bytes, changesets: int) -> Kept:
    """Return the part that the first changesets of a repository brought.

    An incomplete entry was being written, so it belongs to a later changeset.
    """
    if is_inline(index):
        return _keep_inline(index, changesets)
    revisions = len(index) // SIZE
    while revisions and _ENTRY.unpack_from(index, (revisions - 1) * SIZE)[4] >= changesets:
        revisions -= 1
    data = 0
    if revisions:
        entry = _ENTRY.unpack_from(index, (revisions - 1) * SIZE)
        # The first entry has the header in place of its offset, which is 0.
        data = entry[1] + ((entry[0] >> 16) if revisions > 1 else 0)
    return Kept(revisions, revisions * SIZE, data, is_inline=False)


def _keep_inline(index: bytes, changesets: int) -> Kept:
    revisions = end = 0
    while end + SIZE <= len(index):
        entry = _ENTRY.unpack_from(index, end)
        following = end + SIZE + entry[1]
        if entry[4] >= changesets or following > len(index):
            break
        revisions, end = revisions + 1, following
    return Kept(revisions, end, 0, is_inline=True)


def node(index: bytes, revision: int) -> str:
    """Return the hash of a revision of an index that is not inline, as text."""
    hashed: bytes = _ENTRY.unpack_from(index, revision * SIZE)[7]
    return hashed.hex()


def last_node(index: bytes, kept: Kept) -> str:
    """Return the hash of the last revision of the part to keep; empty if there is none."""
    if not kept.revisions:
        return ""
    if not kept.is_inline:
        return node(index, kept.revisions - 1)
    place = end = 0
    while end < kept.index_bytes:
        place, end = end, end + SIZE + _ENTRY.unpack_from(index, end)[1]
    hashed: bytes = _ENTRY.unpack_from(index, place)[7]
    return hashed.hex()


def changesets(index: bytes, kept: Kept) -> Iterator[Changeset]:
    """Yield the changesets of the part of the changelog's index to keep, in their order."""
    place = 0
    for _ in range(kept.revisions):
        entry = _ENTRY.unpack_from(index, place)
        parents = tuple(number for number in entry[5:7] if number >= 0)
        yield Changeset(entry[7].hex(), parents)
        place += SIZE + (entry[1] if kept.is_inline else 0)

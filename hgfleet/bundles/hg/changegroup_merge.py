"""Merge of changegroups: several, each continuing where the previous ends, become one.

A changegroup has the deltas of the changelog, then the deltas of the manifests, then a group of
deltas for each file, in the order of the files' names. Version 02 names the base of each delta, so
groups of a revlog can follow each other. A client that opens an answer as a bundle repository (`hg
incoming`) takes a single changegroup, with a single group for each file.

The merge reads each changegroup once, from its beginning to its end, and stops between two groups
while it copies from another changegroup. It keeps a block of each changegroup, and a block of the
result.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BLOCK: Final = 65536
END: Final = b"\0\0\0\0"
"""The end of a group, and after the last group the end of the changegroup."""

DELTA_HEADER: Final = 100
"""Bytes of node, parents, delta base and changeset before each delta of version 02."""

MAX_NAME: Final = 65536
"""The most bytes in the name of a file."""

_LENGTH: Final = struct.Struct(">l")


class CorruptChangegroupError(HgfleetError):
    """A changegroup whose chunks do not make up groups; the message says where."""


@dataclass(slots=True)
class Changegroup:
    """A changegroup that is read chunk by chunk; `read` returns at most that many bytes.

    `name` is for error messages.
    """

    name: str
    read: Callable[[int], bytes]
    _block: bytes = b""
    _at: int = 0
    _file: bytes = field(default=b"", init=False)

    def group(self) -> Iterator[bytes]:
        """Yield the chunks of a group, many in a piece, without its end."""
        while True:
            yield self._whole_chunks()
            length = self._length(DELTA_HEADER, 2**31)
            if not length:
                return
            # This chunk goes on in the next block.
            yield _LENGTH.pack(length + _LENGTH.size)
            yield from self._bytes(length)

    def next_file(self) -> bytes | None:
        """Read the name of the next file; None at the end. Names have to ascend."""
        length = self._length(1, MAX_NAME)
        if not length:
            return None
        name = b"".join(self._bytes(length))
        if name <= self._file:
            raise self._corrupt(f"got the file {name!r} after {self._file!r}")
        self._file = name
        return name

    def _whole_chunks(self) -> bytes:
        """Take the chunks of a group that are whole in this block, if any.

        Most chunks are some 200 bytes, so this loop takes most of the time of the merge.
        """
        block, first, end = self._block, self._at, len(self._block)
        at = first
        while at + _LENGTH.size <= end:
            (length,) = _LENGTH.unpack_from(block, at)
            if length < DELTA_HEADER + _LENGTH.size or at + length > end:
                break
            at += length
        self._at = at
        return block[first:at]

    def _length(self, least: int, most: int) -> int:
        """Read the length of a chunk's content; 0 at the end of a group."""
        (length,) = _LENGTH.unpack(b"".join(self._bytes(_LENGTH.size)))
        if length == 0:
            return 0
        length -= _LENGTH.size
        if not least <= length <= most:
            raise self._corrupt(f"got a chunk of {length:,} bytes, expected {least:,} to {most:,}")
        return int(length)

    def _bytes(self, count: int) -> Iterator[bytes]:
        """Yield so many bytes, in pieces of a block at most."""
        end = self._at + count
        while end > len(self._block):
            if self._at < len(self._block):
                yield self._block[self._at :]
            end -= len(self._block)
            self._block, self._at = self.read(BLOCK), 0
            if not self._block:
                raise self._corrupt("it ends in the midst of a chunk")
        yield self._block[self._at : end]
        self._at = end

    def _corrupt(self, difference: str) -> CorruptChangegroupError:
        return CorruptChangegroupError(f"{self.name}: corrupt changegroup: {difference}")


def merge(changegroups: Sequence[Changegroup]) -> Iterator[bytes]:
    """Yield a changegroup with the content of all, in this order, in pieces of about a block.

    Raises CorruptChangegroupError where a changegroup is corrupt.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in _pieces(changegroups):
        pieces.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(pieces)
            pieces.clear()
            size = 0
    yield b"".join(pieces)


def _pieces(changegroups: Sequence[Changegroup]) -> Iterator[bytes]:
    for _changelog_then_manifests in range(2):
        for changegroup in changegroups:
            yield from changegroup.group()
        yield END
    names = [changegroup.next_file() for changegroup in changegroups]
    while waiting := [name for name in names if name is not None]:
        name = min(waiting)
        yield _LENGTH.pack(len(name) + _LENGTH.size) + name
        for number, changegroup in enumerate(changegroups):
            if names[number] == name:
                yield from changegroup.group()
                names[number] = changegroup.next_file()
        yield END
    yield END

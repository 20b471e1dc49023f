"""Changed paths of a changeset, read only from the difference of two manifests.

A changeset also has a list of its files, but the client writes that list: a changeset with an empty
list and a link in its manifest is stored all the same. A manifest is a sorted list of lines

    PATH NUL 40 hexadecimal digits, FLAG ("l" a link, "x" executable, "" neither) LF

stored as deltas: pieces of bytes that replace others. The client writes those as well,
and a piece need not begin where a line does; joined without their surroundings, pieces can look
like harmless lines. So the pieces are compared with the text that they change.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUNK: Final = struct.Struct(">lll")


class ManifestError(Exception):
    """A manifest that hg itself could not read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The lines by which two manifests differ, by path."""

    before: dict[bytes, bytes]
    after: dict[bytes, bytes]

    def paths(self) -> Iterator[bytes]:
        """All paths that were added, changed or removed."""
        yield from self.after
        for path in self.before:
            if path not in self.after:
                yield path


def difference(before: bytes, after: bytes, delta: bytes) -> Difference:
    """Compare two manifests, given the delta that turns the first into the second.

    The cost is the length of the delta if its pieces are whole lines, as every hg writes them.
    Raises ManifestError if the lines are not a manifest.
    """
    # If every piece of the delta replaces whole lines by whole lines, the changed lines are in the
    # pieces, and nothing else of the two texts is read. A hostile client may cut lines in the
    # middle; then all lines of both texts are compared.
    pieces = _whole_lines(before, delta)
    if pieces is None:
        old, new = before.split(b"\n"), after.split(b"\n")
        if old[-1] or new[-1]:
            raise ManifestError("a manifest that does not end with a line end")
    else:
        old = [line for piece, _ in pieces for line in piece.split(b"\n")]
        new = [line for _, piece in pieces for line in piece.split(b"\n")]
    removed, added = set(old), set(new)
    return Difference(_by_path(removed - added), _by_path(added - removed))


def entry(line: bytes) -> tuple[bytes, bytes]:
    """Return the node and the flag that follow the path in a line."""
    return bytes.fromhex(line[:40].decode("ascii")), line[40:]


def _whole_lines(before: bytes, delta: bytes) -> list[tuple[bytes, bytes]] | None:
    pieces = []
    position = 0
    while position < len(delta):
        start, end, length = _HUNK.unpack_from(delta, position)
        position += _HUNK.size
        new = delta[position : position + length]
        position += length
        old = before[start:end]
        begins = start == 0 or before[start - 1 : start] == b"\n"
        if not begins or (old and old[-1:] != b"\n") or (new and new[-1:] != b"\n"):
            return None
        pieces.append((old, new))
    return pieces


def _by_path(lines: set[bytes]) -> dict[bytes, bytes]:
    result = {}
    for line in lines:
        if not line:
            continue
        path, _, rest = line.partition(b"\0")
        if not path or len(rest) < 40 or rest[40:] not in (b"", b"l", b"x"):
            raise ManifestError(f"the line {line[:200]!r} in a manifest")
        result[path] = rest
    return result

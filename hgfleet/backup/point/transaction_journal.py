"""Journal of a Mercurial transaction: the state that an abort restores. Pure.

`.hg/store/journal` names each file that the transaction appends to, with its former size.
`.hg/store/journal.backupfiles` names each file that it replaces, with a copy of the former content
(version 2 of the format, Mercurial 3.2 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "journal"
REPLACED: Final = "journal.backupfiles"

_VERSION: Final = b"2"


class Journal(NamedTuple):
    """The state before a transaction. Names are relative to `.hg`."""

    sizes: Mapping[str, int]
    """Size of each appended file before the transaction (bytes)."""
    copies: Mapping[str, str | None]
    """Copy of each replaced file; None for a file that did not exist."""


def parse(appended: bytes, replaced: bytes) -> Journal | None:
    """Read both files; None if another version of Mercurial wrote them.

    A line without its line feed is being written; the change that it names has not happened yet.
    """
    sizes: dict[str, int] = {}
    for line in appended.split(b"\n")[:-1]:
        name, separator, size = line.partition(b"\0")
        if not separator or not size.isdigit():
            return None
        sizes.setdefault(f"store/{_text(name)}", int(size))
    version, *lines = replaced.split(b"\n")
    if version and version != _VERSION:
        return None
    copies: dict[str, str | None] = {}
    for line in lines[:-1]:
        fields = line.split(b"\0")
        if len(fields) != 4:
            return None
        place, file, copy, _cache = (_text(field) for field in fields)
        if file:
            folder = "" if place == "plain" else "store/"
            copies.setdefault(folder + file, folder + copy if copy else None)
    return Journal(sizes, copies)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")

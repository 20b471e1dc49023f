"""Bookmarks of a repository on this host's disk, compared with the records of its push log.

Bookmarks are in a file outside the store (Mercurial 7.2), so a repository whose store was copied
from a mirror may have all pushes, but older bookmarks. A bookmark that no record has moved is not
compared: it is older than the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.pushlog import log_file
from hgfleet.pushlog.committed import CommittedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hgfleet.pushlog.record import Node, Record

FILES: Final = (".hg/bookmarks", ".hg/store/bookmarks")
"""Mercurial uses either file, by the requirements of the repository; it may be absent."""

_LINE: Final = re.compile(rb"([0-9a-f]{40}) (.+)")


@dataclass(frozen=True, slots=True)
class Stale:
    """A bookmark that is not where its last record moved it; None means no such bookmark."""

    name: str
    here: Node | None
    recorded: Node | None

    def __str__(self) -> str:
        here, recorded = (node[:12] if node else "none" for node in (self.here, self.recorded))
        return f"bookmark {self.name!r}: got {here}, expected {recorded}"


def last_moves(records: Iterable[Record]) -> dict[str, Node | None]:
    """Return where the records moved bookmarks last."""
    return {name: after for record in records for name, _before, after in record.bookmarks}


def parse(text: bytes) -> dict[str, Node]:
    """Read a file of bookmarks; like Mercurial, leave out malformed lines."""
    lines = map(_LINE.fullmatch, text.split(b"\n"))
    return {
        line[2].decode("utf-8", "surrogateescape"): line[1].decode("ascii")
        for line in lines
        if line
    }


def stale(moves: Mapping[str, Node | None], here: Mapping[str, Node]) -> list[Stale]:
    """Return the bookmarks that are not where their records moved them."""
    return [
        Stale(name, here.get(name), node)
        for name, node in sorted(moves.items())
        if here.get(name) != node
    ]


def find_stale(repository: Path) -> list[Stale]:
    """Compare the bookmarks of a repository with its committed records (I/O).

    Raises PushlogError, TemporaryError and OSError.
    """
    with CommittedLog(repository / ".hg/store" / log_file.NAME) as log:
        moves = last_moves(entry.record for entry in log.entries())
    here: dict[str, Node] = {}
    for name in FILES:
        try:
            here |= parse((repository / name).read_bytes())
        except FileNotFoundError:
            continue
    return stale(moves, here)

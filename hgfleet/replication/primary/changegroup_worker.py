"""Changegroups, computed by hg in a process of its own.

    python -m hgfleet.replication.primary.changegroup_worker

A request is a line of JSON on stdin: {"request": NUMBER, "repository": PATH, "nodes": [...],
"level": N}. The answer on stdout consists of pieces of a changegroup of version 03 of exactly these
changesets, compressed with zlib: each is a line {"request": NUMBER, "size": N} and N bytes. Size 0
ends the answer. If the answer is not whole, its last line has a "reason" and the process ends, so a
failed request leaves nothing to the next request. The end of stdin ends the process, so a killed
relay leaves no process behind. Repositories stay open for the next request.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from mercurial import ui as ui_module
from mercurial.repo import factory

from hgfleet.hg import repository_settings
from hgfleet.replication.source import changesets
from hgfleet.replication.source.requests import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

MAX_OPEN: Final = 64
MAX_CHANGESETS: Final = 1_000_000
"""Repositories that stay open, and the sum of their changesets (some 100 bytes each)."""

MEMORY_BYTES: Final = 1024**3
"""Data segment of the process (RLIMIT_DATA): a changegroup that needs more is fetched instead."""


class Opened:
    """Repositories that stay open: the repositories that were used last."""

    def __init__(self, most: int = MAX_OPEN, changesets: int = MAX_CHANGESETS) -> None:
        self._most, self._changesets = most, changesets
        self._repositories: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def get(self, path: str) -> Any:
        """Return the repository at a path, with all its changesets, as it is on the disk now."""
        inode = os.stat(f"{path}/.hg/store").st_ino  # noqa: PTH116
        opened = self._repositories.pop(path, None)
        if opened is None or opened[1] != inode:
            ui = ui_module.ui.load()
            repository_settings.skip(ui)
            ui.setconfig(b"ui", b"interactive", b"no", b"hgfleet.replication")
            # Paths must lead to the store that is there now, not to a pinned store.
            ui.setconfig(b"extensions", b"pinned_store", b"!", b"hgfleet.replication")
            opened = factory.repository(ui, os.fsencode(path)).unfiltered(), inode
        else:
            opened[0].invalidateall()
        self._repositories[path] = opened
        return opened[0]

    def trim(self) -> None:
        """Close repositories until the bounds hold, except the repository used last."""
        total = sum(len(repository) for repository, _ in self._repositories.values())
        while len(self._repositories) > 1 and (
            len(self._repositories) > self._most or total > self._changesets
        ):
            _, (closed, _) = self._repositories.popitem(last=False)
            total -= len(closed)

    def __len__(self) -> int:
        return len(self._repositories)


def answer(opened: Opened, line: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Answer a request; an error of hg becomes a reason, and the mirrors fetch the changesets."""
    asked = json.loads(line)
    head: dict[str, Any] = {"request": asked["request"]}
    reason = {}
    try:
        selection = Selection(nodes=tuple(asked["nodes"]))
        whole = opened.get(asked["repository"])
        for piece in filter(None, changesets.stream(whole, selection, asked["level"])):
            yield head | {"size": len(piece)}, piece
    except MemoryError:
        reason = {"reason": "it needs too much memory"}
    except Exception as error:
        reason = {"reason": f"{type(error).__name__}: {error}"[:500]}
    else:
        opened.trim()
    yield head | {"size": 0} | reason, b""


def main() -> int:
    """Answer requests until stdin ends, or a request fails."""
    source: BinaryIO = sys.stdin.buffer
    # Output that hg prints must not get between the answers.
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, hard))
    opened = Opened()
    while line := source.readline():
        head: dict[str, Any] = {}
        for head, piece in answer(opened, line):
            target.write(json.dumps(head).encode("ascii") + b"\n" + piece)
        target.flush()
        if "reason" in head:
            # This skips the destructors of the failed request's objects.
            os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())

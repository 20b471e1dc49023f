"""Revisions of files and manifests that came with a push, read back as every client will.

Core's server stores the differences that a client sends, and compares no text with its hash. The
first reader does: a revision with a wrong hash ends every clone and pull.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from mercurial import error

from hgfleet.policies.file_lists import ELSEWHERE, UNREADABLE, untrue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hgfleet.policies.manifest_diff import Difference

MOST_FILES: Final = 1000
"""Logs of files that are kept open for the next changeset."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of their texts together: each log keeps the text that was read from it last."""

_UNREADABLE: Final = (error.Error, error.StorageError, ValueError, LookupError, AttributeError)
"""What core raises for a wrong hash, a removed content, an unknown flag, a malformed copy."""

_STORED: Final = operator.attrgetter("_revlog")
"""The revlog below a filelog; core has no public way to have one forget texts."""


class Files:
    """Logs of files by their paths. Those that were not read for longest are closed."""

    def __init__(self, open_file: Callable[[bytes], Any]) -> None:
        self._open = open_file
        self._kept: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, path: bytes) -> Any:
        """Return the log of a file."""
        if path not in self._kept:
            self._keep(path, self._open(path), 0)
        return self._kept[path][0]

    def read(self, path: bytes, node: bytes) -> None:
        """Read a text; raises what core raises."""
        log = self.get(path)
        size = len(log.read(node))
        self._bytes -= self._kept.pop(path)[1]
        self._keep(path, log, size)

    def _keep(self, path: bytes, log: Any, size: int) -> None:
        self._kept[path] = (log, size)
        self._bytes += size
        while len(self._kept) > 1 and (len(self._kept) > MOST_FILES or self._bytes > MOST_BYTES):
            _, (dropped, size) = self._kept.popitem(last=False)
            # It is in cycles of references, and so it may stay in memory for a while.
            _STORED(dropped).clearcaches()
            self._bytes -= size


class FileRevisions:
    """Files and manifests of an unfiltered repository."""

    def __init__(self, repo: Any) -> None:
        self._repo = repo
        self._manifests = repo.manifestlog.getstorage(b"")
        self._files = Files(repo.file)
        self._last = b""

    def untrue(self, rev: int, differences: Sequence[Difference]) -> Iterator[tuple[str, bytes]]:
        """Yield what is untrue about a path or the manifest (no path) of a changeset."""
        changes = self._repo.changelog.changelogrevision(rev)
        if changes.manifest != self._last:
            self._last = changes.manifest
            try:
                self._manifests.revision(changes.manifest)
            except _UNREADABLE as error:
                _raise_memory(error)
                yield UNREADABLE, b""
                return
        yield from untrue(
            changes.files,
            differences,
            lambda path: bool(len(self._files.get(path))),
            lambda path, node: self._problem(rev, path, node),
        )

    def _problem(self, rev: int, path: bytes, node: bytes) -> str | None:
        log = self._files.get(path)
        try:
            self._files.read(path, node)
            copied = log.renamed(node)
            if copied and copied[1] != self._repo.nullid:
                self._files.get(copied[0]).rev(copied[1])
        except _UNREADABLE as error:
            _raise_memory(error)
            return UNREADABLE
        link = int(log.linkrev(log.rev(node)))
        # One revision may come in several changesets; it belongs to the first.
        if link != rev and self._repo[link].manifest().get(path) != node:
            return ELSEWHERE
        return None


def _raise_memory(error: BaseException | None) -> None:
    """Raise the MemoryError that core reports as an error of the storage (7.2)."""
    while error is not None:
        if isinstance(error, MemoryError):
            raise error
        error = error.__context__

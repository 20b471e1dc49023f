"""Revisions of files and manifests that came with a push, read back as every client will.

Core's server stores the differences that a client sends, and compares no text with its hash. The
first reader does: a revision with a wrong hash ends every clone and pull.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from mercurial import error

from hgfleet.policies.file_lists import ELSEWHERE, UNREADABLE, untrue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hgfleet.policies.manifest_diff import Difference

_FILES: Final = 1000
"""Logs of files that are kept open for the next changeset."""

_UNREADABLE: Final = (error.Error, error.StorageError, ValueError, LookupError, AttributeError)
"""What core raises for a wrong hash, a removed content, an unknown flag, a malformed copy."""


class FileRevisions:
    """Files and manifests of an unfiltered repository."""

    def __init__(self, repo: Any) -> None:
        self._repo = repo
        self._manifests = repo.manifestlog.getstorage(b"")
        self._file = functools.lru_cache(_FILES)(repo.file)
        self._last = b""

    def untrue(self, rev: int, differences: Sequence[Difference]) -> Iterator[tuple[str, bytes]]:
        """Yield what is untrue about a path or the manifest (no path) of a changeset."""
        changes = self._repo.changelog.changelogrevision(rev)
        if changes.manifest != self._last:
            self._last = changes.manifest
            try:
                self._manifests.revision(changes.manifest)
            except _UNREADABLE:
                yield UNREADABLE, b""
                return
        yield from untrue(
            changes.files,
            differences,
            lambda path: bool(len(self._file(path))),
            lambda path, node: self._problem(rev, path, node),
        )

    def _problem(self, rev: int, path: bytes, node: bytes) -> str | None:
        log = self._file(path)
        try:
            log.read(node)
            copied = log.renamed(node)
            if copied and copied[1] != self._repo.nullid:
                self._file(copied[0]).rev(copied[1])
        except _UNREADABLE:
            return UNREADABLE
        link = int(log.linkrev(log.rev(node)))
        # One revision may come in several changesets; it belongs to the first.
        if link != rev and self._repo[link].manifest().get(path) != node:
            return ELSEWHERE
        return None

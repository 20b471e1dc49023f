"""Revisions of files are read back with few texts in memory, and without false findings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from mercurial import error

from hgfleet.policies.file_revisions import FileRevisions


class Log:
    """A log of a file with one revision, of changeset 0, or a log that fails."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem, self.is_cleared = problem, False
        self._revlog = SimpleNamespace(clearcaches=self.clear)

    def clear(self) -> None:
        self.is_cleared = True

    def hasnode(self, _node: bytes) -> bool:
        return True

    def read(self, _node: bytes) -> bytes:
        if self.problem:
            raise self.problem
        return b""

    def renamed(self, _node: bytes) -> None:
        return None

    def rev(self, _node: bytes) -> int:
        return 0

    linkrev = rev


def revisions(log: Log) -> FileRevisions:
    """Return the revisions of a repository where each path has this log."""
    repo = SimpleNamespace(
        manifestlog=SimpleNamespace(getstorage=lambda _tree: None), file=lambda _path: log
    )
    return FileRevisions(repo, lambda _rev: [])


def test_no_text_of_a_file_stays_in_memory_after_it_has_been_read() -> None:
    log = Log()
    assert revisions(log)._readable(b"a", [b"node"]) == {b"node": 0}
    assert log.is_cleared


def test_a_lack_of_memory_is_no_problem_of_a_revision() -> None:
    problem = error.StorageError(b"integrity check failed")
    assert revisions(Log(problem))._readable(b"a", [b"node"]) == {}
    # Core reports it as damage (7.2).
    problem.__context__ = MemoryError()
    with pytest.raises(MemoryError):
        revisions(Log(problem))._readable(b"a", [b"node"])

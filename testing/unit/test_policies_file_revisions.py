"""Revisions of files are read back with a few texts in memory, and without a false word of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from mercurial import error

from hgfleet.policies import file_revisions
from hgfleet.policies.file_lists import UNREADABLE
from hgfleet.policies.file_revisions import FileRevisions, Files


class Log:
    """A log of a file with one text."""

    def __init__(self, size: int) -> None:
        self.size, self.is_cleared = size, False
        self._revlog = SimpleNamespace(clearcaches=self.clear)

    def clear(self) -> None:
        self.is_cleared = True

    def read(self, _node: bytes) -> bytes:
        return b"x" * self.size


def test_logs_are_closed_above_the_bytes_of_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_revisions, "MOST_BYTES", 100)
    logs = {b"a": Log(60), b"b": Log(30), b"c": Log(50)}
    files = Files(logs.__getitem__)
    for path in (b"a", b"b", b"a", b"c"):
        files.read(path, b"")
    assert [logs[path].is_cleared for path in (b"a", b"b", b"c")] == [True, True, False]
    # One that alone has more is kept until the next one.
    big = logs[b"d"] = Log(200)
    files.read(b"d", b"")
    assert not big.is_cleared
    assert files.get(b"d") is big
    files.read(b"b", b"")
    assert big.is_cleared


def test_logs_are_closed_above_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_revisions, "MOST_FILES", 2)
    logs = {name: Log(0) for name in (b"a", b"b", b"c")}
    files = Files(logs.__getitem__)
    for path in logs:
        files.get(path)
    assert [log.is_cleared for log in logs.values()] == [True, False, False]


def revisions(problem: BaseException, cause: BaseException | None) -> FileRevisions:
    """Return those of a repository where reading a file fails, with what failed below."""

    class Failing(Log):
        def read(self, _node: bytes) -> bytes:
            problem.__context__ = cause
            raise problem

    repo = SimpleNamespace(
        manifestlog=SimpleNamespace(getstorage=lambda _tree: None), file=lambda _path: Failing(0)
    )
    return FileRevisions(repo)


def test_a_lack_of_memory_is_no_problem_of_a_revision() -> None:
    found = revisions(error.StorageError(b"integrity check failed"), None)
    assert found._problem(0, b"a", b"") == UNREADABLE
    # Core reports it as damage (7.2).
    short = revisions(error.StorageError(b"integrity check failed"), MemoryError())
    with pytest.raises(MemoryError):
        short._problem(0, b"a", b"")

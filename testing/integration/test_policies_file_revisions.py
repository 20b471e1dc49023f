"""Revisions of files are read together, file by file; each problem names its changeset."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mercurial import context, hg, revlog
from mercurial import ui as ui_module
from mercurial.node import hex as to_hex
from mercurial.node import nullid

from hgfleet.core.principal import Principal
from hgfleet.policies import file_revisions
from hgfleet.policies.before import Before
from hgfleet.policies.file_lists import ELSEWHERE, UNREADABLE
from hgfleet.policies.push_facts import RepositoryPush

if TYPE_CHECKING:
    from pathlib import Path

FILES = 7
CHANGESETS = 40
WRONG, MOVED, ALSO_WRONG = 11, 19, 25
"""Changesets with a revision that has another hash than its text, or another changeset."""


def path(number: int, nth: int) -> bytes:
    """Return the name of a file of a changeset; neighbours have different names."""
    return b"file-%d" % ((number * 3 + nth) % FILES)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history whose changesets change two files each, in turn, three of them damaged."""
    folder = tmp_path_factory.mktemp("history") / "repository"
    repo = hg.repository(ui_module.ui.load(), bytes(folder), create=True)
    # Core's own client would notice the damage that it writes.
    patched = pytest.MonkeyPatch.context()
    with patched as patch, repo.lock(), repo.transaction(b"history") as transaction:
        patch.setattr(revlog.revlog, "checkhash", lambda *_words, **_more: None)
        for number in range(CHANGESETS):
            if number in (WRONG, MOVED, ALSO_WRONG):
                _damaged(repo, transaction, number)
            else:
                _commit(repo, number)
    return folder


def _commit(repo: Any, number: int) -> None:
    def content(repo: Any, changeset: Any, name: bytes) -> Any:
        return context.memfilectx(repo, changeset, name, b"%d of %b\n" % (number, name) * 40)

    names = sorted(path(number, nth) for nth in range(2))
    parents = (repo[b"tip"].node(), nullid)
    repo.commitctx(context.memctx(repo, parents, b"%d" % number, names, content, user=b"test"))


def _damaged(repo: Any, transaction: Any, number: int) -> None:
    name = path(number, 0)
    log = repo.file(name, writable=True)._revlog
    before = log.node(len(log) - 1)
    wrong = None if number == MOVED else b"\x42" * 19 + bytes([number])
    link = 0 if number == MOVED else number
    rev = log.addrevision(
        b"damaged %d\n" % number * 40, transaction, link, before, nullid, node=wrong
    )
    manifest = repo[b"tip"].manifestctx().copy()
    manifest.read()[name] = log.node(rev)
    tip = repo[b"tip"]
    node = manifest.write(transaction, number, tip.manifestnode(), nullid, [name], [])
    text = b"\n".join([to_hex(node), b"test", b"0 0", name, b"", b"%d" % number])
    repo.changelog.addrevision(text, transaction, number, tip.node(), nullid)


def problems(repo: Any) -> list[tuple[int, str, str]]:
    """Return the number of each changeset with a problem, the problem, and the path."""
    changes = {b"origrepolen": 0, b"bookmarks": {}, b"obsmarkers": set()}
    transaction = SimpleNamespace(changes=changes, hookargs={})
    push = RepositoryPush(repo, transaction, Principal("bob", frozenset()), Before(hidden=()))
    return [
        (number, what, name)
        for number, changeset in enumerate(push.added)
        for what, name in push.untrue_files(changeset)
    ]


@pytest.mark.parametrize("ahead", [1, 9, file_revisions._AHEAD])
def test_a_problem_is_in_its_changeset_however_many_are_read_together(
    history: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(file_revisions, "_AHEAD", ahead)
    repo = hg.repository(ui_module.ui.load(), bytes(history))
    assert problems(repo) == [
        (number, ELSEWHERE if number == MOVED else UNREADABLE, path(number, 0).decode())
        for number in (WRONG, MOVED, ALSO_WRONG)
    ]


def test_the_revisions_of_a_file_are_read_in_the_order_of_the_store(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hg.repository(ui_module.ui.load(), bytes(history))
    read: list[tuple[bytes, int]] = []
    original = repo.file

    def counted(name: bytes) -> Any:
        log = original(name)
        log_read = log.read

        def noted(node: bytes) -> bytes:
            read.append((name, log.rev(node)))
            return bytes(log_read(node))

        log.read = noted
        return log

    monkeypatch.setattr(repo.unfiltered(), "file", counted)
    assert len(problems(repo)) == 3
    files = [name for name, _ in read]
    # In sequence: each text is made from the text that was read before it.
    assert [name for name, _ in itertools.groupby(files)] == list(dict.fromkeys(files))
    for name in dict.fromkeys(files):
        revisions = [rev for other, rev in read if other == name]
        assert revisions == list(range(len(original(name))))

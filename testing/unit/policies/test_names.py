"""Malformed names of bookmarks, branches and files are refused, and no other names."""

from __future__ import annotations

import pytest
from mercurial import pathutil

from hgfleet.core.principal import Principal
from hgfleet.policies.base import Bookmark, Changeset, Entry
from hgfleet.policies.names import MAX_LABEL, Names, label_problem, name_problem, path_problem


class Made:
    """A push with these bookmarks, branches and files."""

    principal = Principal("mallory", frozenset())
    tags = ()
    moved_tags = ()
    appeared = ()

    def __init__(
        self,
        bookmarks: tuple[Bookmark, ...] = (),
        branches: tuple[bytes, ...] = (),
        paths: tuple[str, ...] = (),
    ) -> None:
        self.bookmarks = bookmarks
        self.paths = paths
        self.added = [
            Changeset(f"{n:040x}", branch.decode("latin-1"), "m", "m", stored_branch=branch)
            for n, branch in enumerate(branches)
        ]

    def has_branch(self, _name: str) -> bool:
        return False

    def has_tag(self, _stored: bytes) -> bool:
        return False

    def has_bookmark(self, _stored: bytes) -> bool:
        return False

    def entries(self, _changeset: Changeset) -> list[Entry]:
        return [Entry(path, b"", "file") for path in self.paths]


def problem(path: bytes) -> str | None:
    return path_problem(path, pathutil.pathauditor(b"", realfs=False))


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b" x",
        b"x ",
        b"x\t",
        b"a\nb",
        b"a\rb",
        b"a\0b",
        b"\x1b[2J",
        b"\x7f",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xc2\xa0x",
        b"\xff",
        b"x" * (MAX_LABEL + 1),
    ],
)
def test_a_malformed_label_is_refused(name: bytes) -> None:
    assert label_problem(name)
    assert name_problem(name)


@pytest.mark.parametrize("name", [b"default", b"a b", "gr\u00f6\u00dfe".encode(), b"x" * MAX_LABEL])
def test_other_labels_are_fine(name: bytes) -> None:
    assert label_problem(name) is None
    assert name_problem(name) is None


@pytest.mark.parametrize("name", [b"tip", b".", b"null", b"12", b"-1", b"a:b", b"a" * 40])
def test_a_name_with_a_meaning_for_hg_is_refused_unless_the_branch_is_there(name: bytes) -> None:
    assert name_problem(name)
    assert label_problem(name) is None
    for begins, count in ((True, 1), (False, 0)):
        changeset = Changeset("1" * 40, "m", "m", "m", stored_branch=name, begins_branch=begins)
        push = Made()
        push.added = [changeset]
        assert len(list(Names({}).check(push))) == count  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        b"../x",
        b"../../../../tmp/x",
        b"a/../b",
        b"..",
        b"/abs",
        b"a/",
        b"a//b",
        b"./a",
        b"a/./b",
        b".",
        b"",
        b".hg",
        b".hg/hgrc",
        b".HG/hgrc",
        b".hG./x",
        b"a/.hg",
        b"a/.hg/x",
        b"a/.Hg./x",
        b".hg /x",
        b".hg. ./x",
        b".hg::$INDEX_ALLOCATION/x",
        b"a\\.hg\\x",
        b"..\\x",
        b"a\\..\\..\\x",
        b"C:/x",
        b"c:\\x",
        b"HG~1/x",
        b"hg8b6c~1/x",
        b".h\xe2\x80\x8cg/x",
        b"a\nb",
        b"a\rb",
        b"a\0b",
    ],
)
def test_a_path_out_of_its_place_is_refused(path: bytes) -> None:
    assert problem(path)


@pytest.mark.parametrize(
    "path",
    [
        b"a",
        b".hgignore",
        b"a/.hgx",
        b"..a",
        b"a..",
        b"a/...",
        b"a~1",
        b"x\\2dy",
        b"\xff",
        b"c:",
        b".hgx:y",
    ],
)
def test_other_paths_are_fine(path: bytes) -> None:
    assert problem(path) is None


def test_each_kind_of_name_is_checked_and_shown_without_control_characters() -> None:
    push = Made((Bookmark("a\nb", (), b"a\nb"),), (b"x\ny", b"x\ny", b"ok"), ("../x",))
    problems = list(Names({}).check(push))  # type: ignore[arg-type]
    # The path three times, because each changeset has it; the branch once.
    assert len(problems) == 5
    assert problems[0].startswith("the bookmark a\\x0ab has a control character")
    assert problems[1].startswith("000000000000 is on the branch x\\x0ay, which has a control")
    assert problems[2].startswith("000000000000 has ../x, a path that leaves")
    assert not any("\n" in sentence for sentence in problems)


def test_a_malformed_bookmark_may_be_deleted() -> None:
    push = Made((Bookmark("a\nb", (), b"a\nb", is_deleted=True),))
    assert list(Names({}).check(push)) == []  # type: ignore[arg-type]

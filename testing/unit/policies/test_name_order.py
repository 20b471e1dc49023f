"""Core looks for a name where the policies expect it, in the order that they know."""

from __future__ import annotations

import ast
import inspect

import pytest
from mercurial import namespaces, scmutil

REVSYMBOL = inspect.getsource(scmutil.revsymbol)

ORDER = [
    # Names that mean something else: refused as names of bookmarks, branches and tags.
    "symbol in (b'.', b'tip', b'null')",
    "repo[symbol]",
    # A number of a revision, and a whole hash: likewise.
    "int(symbol)",
    "b'%d' % r != symbol",
    "len(symbol)",
    "bin(symbol)",
    # Bookmarks, tags and branches, see below: rules of one kind cover the others.
    "repo.names.singlenode(repo, symbol)",
    # The beginning of a hash: refused as a name.
    "resolvehexnodeidprefix(repo, symbol)",
]


def asked(source: str) -> list[str]:
    """Return each use of `symbol` inside the `try` of a function, in the order of the source."""
    function = ast.parse(source).body[0]
    (body,) = (node for node in ast.iter_child_nodes(function) if isinstance(node, ast.Try))
    calls = []
    for statement in body.body:
        for node in ast.walk(statement):
            parts: list[ast.AST] = []
            match node:
                case ast.Call(args=args):
                    parts = list(args)
                case ast.Subscript(slice=index):
                    parts = [index]
                case ast.Compare(left=left, comparators=others):
                    parts = [left, *others]
            if any(isinstance(part, ast.Name) and part.id == "symbol" for part in parts):
                calls.append((node.lineno, ast.unparse(node)))  # type: ignore[attr-defined]
    # Each exception that is raised names the symbol, too.
    return [
        text
        for _, text in sorted(calls, key=lambda call: call[0])
        if not text.startswith(("error.", "_("))
    ]


def test_core_asks_in_the_order_that_policies_know() -> None:
    assert asked(REVSYMBOL) == ORDER


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Another space, asked before the names.
        (
            "        # look up bookmarks",
            "        repo.others.find(symbol)\n        # look up bookmarks",
        ),
        # Another order.
        ("repo.names.singlenode(repo, symbol)", "resolvehexnodeidprefix(repo, symbol)"),
        ("(b'.', b'tip', b'null')", "(b'.', b'tip', b'null', b'@')"),
        ("int(symbol)", "int(symbol, 16)"),
    ],
)
def test_another_order_of_core_is_noticed(old: str, new: str) -> None:
    assert old in REVSYMBOL
    assert asked(REVSYMBOL.replace(old, new)) != ORDER


def test_bookmarks_tags_and_branches_are_the_spaces_of_names() -> None:
    # A rule about branches does not know names of another space that core asks before branches.
    assert [name for name, _ in namespaces.namespaces().items()] == [
        *(b"bookmarks", b"tags", b"branches")
    ]


class Repository:
    """Names and the nodes that they have in each space, for core's own look-up."""

    def __init__(self, *spaces: str) -> None:
        self.names = namespaces.namespaces()
        for name in ("bookmarks", "tags", "branches"):
            node = name.encode() if name in spaces else None
            space = self.names[name.encode()]
            space.namemap = lambda _repo, _name, node=node: [] if node is None else [node]
            space.singlenode = lambda _repo, _name, node=node: node


@pytest.mark.parametrize(
    ("spaces", "expected"),
    [
        (("branches", "tags", "bookmarks"), b"bookmarks"),
        (("branches", "tags"), b"tags"),
        (("branches",), b"branches"),
    ],
)
def test_the_first_space_that_has_a_name_wins(spaces: tuple[str, ...], expected: bytes) -> None:
    repository = Repository(*spaces)
    assert repository.names.singlenode(repository, b"x") == expected

"""Revsets that a web client may search with: a short list of functions with literal arguments.

hgweb evaluates `/log?rev=` as a revset and refuses strings that begin with `re:`. A pattern can get
in by other ways: `file('listfile:PATH')` reads files of the server, `_matchfiles`, `grep` and
`file('set:...')` evaluate regular expressions, and hgweb checks before it joins `'r' ## 'e:...'`. A
regular expression holds the GIL, so no thread can end it. Here the shape of the tree decides, after
aliases are expanded and `##` is joined. Every other query is an exact search for its words.

Written against Mercurial 7.2 (`mercurial/hgweb/webcommands.py`, `_search`).
`testing/integration/web/test_web_core.py` fails when it changes.
"""

from __future__ import annotations

from typing import Any, Final

from mercurial import error, revset, revsetlang
from mercurial.hgweb import webcommands

from hgfleet.web.engine import working_copy

MOST_NODES: Final = 64
"""Of a parsed query. Each function reads up to the whole changelog, so their number is limited."""

MOST_DIGITS: Final = 20
"""Digits of a number that is read; Python refuses more than 4,300."""

SET: Final = "set"
TEXT: Final = "text"
NUMBER: Final = "number"

FUNCTIONS: Final[dict[bytes, tuple[tuple[str, ...], int]]] = {
    b"all": ((), 0),
    b"author": ((TEXT,), 1),
    b"bookmark": ((TEXT,), 0),
    b"branch": ((TEXT,), 1),
    b"children": ((SET,), 1),
    b"closed": ((), 0),
    b"date": ((TEXT,), 1),
    b"desc": ((TEXT,), 1),
    b"draft": ((), 0),
    b"first": ((SET, NUMBER), 1),
    b"head": ((), 0),
    b"heads": ((SET,), 1),
    b"id": ((TEXT,), 1),
    b"keyword": ((TEXT,), 1),
    b"last": ((SET, NUMBER), 1),
    b"limit": ((SET, NUMBER), 1),
    b"merge": ((), 0),
    b"p1": ((SET,), 1),
    b"p2": ((SET,), 1),
    b"parents": ((SET,), 1),
    b"public": ((), 0),
    b"rev": ((NUMBER,), 1),
    b"reverse": ((SET,), 1),
    b"tag": ((TEXT,), 0),
    b"user": ((TEXT,), 1),
}
"""Name of a function: the kinds of its arguments, and how many of them it must have."""

OPERATORS: Final = frozenset(
    {b"and", b"ancestor", b"dagrange", b"dagrangepost", b"dagrangepre", b"group", b"minus", b"not"}
    | {b"or", b"parent", b"parentpost", b"range", b"rangeall", b"rangepost", b"rangepre"}
)

LITERALS: Final = frozenset({b"string", b"symbol"})

Tree = Any
"""A nested tuple of `mercurial.revsetlang`: an operator's name, then its operands."""


def problem(tree: Tree) -> str:
    """Return the reason why a query is not evaluated; empty if it may be."""
    if (nodes := _size(tree)) > MOST_NODES:
        return f"the query has {nodes} parts, expected at most {MOST_NODES}"
    return _problem(tree)


def _size(tree: Tree) -> int:
    if not isinstance(tree, tuple):
        return 0
    return 1 + sum(_size(part) for part in tree[1:])


def _problem(tree: Tree) -> str:
    if not isinstance(tree, tuple):
        return ""
    kind = tree[0]
    if kind in LITERALS:
        return ""
    if kind == b"func":
        return _problem_of_call(tree)
    if kind == b"list" or kind in OPERATORS:
        return next(filter(None, map(_problem, tree[1:])), "")
    return f"'{kind.decode('ascii', 'replace')}' is not part of a search"


def _problem_of_call(tree: Tree) -> str:
    name = tree[1][1]
    shown = name.decode("ascii", "replace")
    if name not in FUNCTIONS:
        return f"{shown}() is not part of a search"
    kinds, least = FUNCTIONS[name]
    arguments = revsetlang.getlist(tree[2])
    if not least <= len(arguments) <= len(kinds):
        return f"{shown}() has {len(arguments)} arguments"
    for kind, argument in zip(kinds, arguments, strict=False):
        if kind == SET:
            reason = _problem(argument)
        elif argument[0] not in LITERALS or argument[1].startswith(b"re:"):
            reason = f"{shown}() takes plain text"
        elif kind == NUMBER and not argument[1].isdigit():
            reason = f"{shown}() takes a number"
        elif _is_working_copy(argument[1]):
            reason = f"{shown}() names the working copy, which a server does not have"
        else:
            reason = ""
        if reason:
            return reason
    return ""


def _is_working_copy(name: bytes) -> bool:
    """Whether `rev()` or `id()` would take a name for the working copy.

    Shorter hashes are looked up by `scmutil`, where `working_copy.hide` has closed them.
    """
    is_number = name.isdigit() and len(name) < MOST_DIGITS and int(name) == working_copy.NUMBER
    return is_number or name.lower() == working_copy.HASH


class _Revsets:
    """`mercurial.revset` as hgweb's search sees it."""

    safesymbols = frozenset(FUNCTIONS) & frozenset(revset.safesymbols)
    lookupfn = staticmethod(revset.lookupfn)

    @staticmethod
    def match(ui: Any, spec: bytes, lookup: Any = None) -> Any:
        """Return a matcher; raise ParseError, which hgweb answers with a search for the words."""
        tree = revsetlang.parse(spec, lookup)
        tree = revsetlang.expandaliases(tree, ui.configitems(b"revsetalias"))
        tree = revsetlang.foldconcat(tree)
        if reason := problem(tree):
            raise error.ParseError(reason.encode("ascii"))
        return revset.match(ui, spec, lookup=lookup)


def restrict() -> None:
    """Give hgweb's search the short list; core 7.2 has no setting for it."""
    webcommands.revset = _Revsets

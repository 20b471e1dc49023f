"""Mutations of the decisions in Python source. Pure functions on text.

| kind | before | after |
| --- | --- | --- |
| comparison | `a < b`, `a == b`, `a in b` | `a <= b` (times: `a >= b`), `a != b`, `a not in b` |
| boolean operator | `a and b` | `a or b`, `a`, `b` |
| negation | `not a` | `a` |
| condition | `if a`, `x if a else y`, `for x in y if a` | `True` or `False` for `a` |
| number of a limit | `LIMIT = 3`, `a > 3`, `a + 3`, `f(days=3)`, `def f(a=3)` | `4` |
| returned boolean | `return True` | `return False` |
| raise | `raise X` | `pass` |
| normal form of a text | `a.lower()`, `a.strip()` | `a` |
| option of a command | `["x", "--a=b"]` | `["x"]` |
| choice | `min(a, b)` | `max(a, b)` |

Assertions, annotations, `if TYPE_CHECKING` and f-strings are not changed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OPPOSITE: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CONTRARY: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    **OPPOSITE,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
}
CLOCK: Final = re.compile(r"\btime\.|monotonic|deadline|\bnow\b")
"""Comparisons of times, which are never equal: the operator is reversed instead."""

TUNED: Final = re.compile(r"_(?:SECONDS|S|BYTES)$")
"""Names of tuned constants, for which a similar value is as good."""

NORMAL_FORMS: Final = frozenset({"lower", "upper", "casefold", "strip", "lstrip", "rstrip"})
CHOICES: Final = {"min": "max", "max": "min"}
MODULE: Final = "module"
"""The scope of code outside of functions and classes."""


@dataclass(frozen=True)
class Mutation:
    """A replacement of source text; `start` and `end` are characters from the beginning."""

    line: int
    scope: str
    """The function, as Class.function, or MODULE."""
    before: str
    after: str
    start: int
    end: int
    text: str
    """The text that replaces the source between start and end."""

    @property
    def change(self) -> str:
        """Render the change for a person, on a single line."""
        return f"{self.before} -> {self.after}"


def mutations(source: str) -> list[Mutation]:
    """Return every mutation of a source text, in the order of the text."""
    places = _Places(source)
    result = [
        Mutation(
            line=node.lineno,
            scope=scope,
            before=before,
            after=after,
            start=places.start(node),
            end=places.end(node),
            text=text if isinstance(node, ast.stmt) else f"({text})",
        )
        for scope, node, before, after, text in _all(ast.parse(source))
    ]
    return sorted(set(result), key=lambda each: (each.start, each.end, each.after))


def apply(source: str, mutation: Mutation) -> str:
    """Return the source text with a mutation."""
    return source[: mutation.start] + mutation.text + source[mutation.end :]


def witness(source: str, mutation: Mutation, mark: str) -> str:
    """Return the source text that creates a file when it reaches the place of a mutation."""
    touch = f"__import__('pathlib').Path({mark!r}).touch()"
    text = source[mutation.start : mutation.end]
    is_statement = not mutation.text.startswith("(")
    text = f"{touch}; {text}" if is_statement else f"({touch} or ({text}))"
    return source[: mutation.start] + text + source[mutation.end :]


class _Places:
    """Translates the places of the parser, in bytes of a line, into characters of the text."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node: ast.stmt | ast.expr) -> int:
        return self._place(node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        characters = len(self.lines[line - 1].encode()[:column].decode())
        return self.starts[line - 1] + characters


_Change = tuple["ast.stmt | ast.expr", str, str]


def _all(tree: ast.Module) -> Iterator[tuple[str, ast.stmt | ast.expr, str, str, str]]:
    waiting: list[tuple[str, ast.AST]] = [(MODULE, tree)]
    while waiting:
        scope, node = waiting.pop()
        for changed, before, after in _of(node):
            if before != after:
                yield scope, changed, before, after, after
        if isinstance(node, ast.List):
            for item, rest in _options(node):
                yield scope, node, item, "(left out)", rest
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope = node.name if scope == MODULE else f"{scope}.{node.name}"
        waiting += [(scope, child) for child in _children(node)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and _is_no_decision(node.test):
        yield from node.orelse
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            # Python 3.11 has no positions inside an f-string.
            if isinstance(child, ast.AST) and not isinstance(child, ast.Assert | ast.JoinedStr):
                yield child


def _is_no_decision(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "__name__ == '__main__'")


def _of(node: ast.AST) -> Iterator[_Change]:
    """Return the changes of a node: the node that is replaced, its text before and after."""
    match node:
        case ast.Compare():
            yield from _comparison(node)
        case ast.BoolOp():
            yield from _boolean(node)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, ast.unparse(node), ast.unparse(operand)
        case ast.Raise():
            yield node, ast.unparse(node), "pass"
        case ast.Return(value=ast.Constant(value=bool() as value)):
            yield node, f"return {value}", f"return {not value}"
        case ast.Call():
            yield from _call(node)
    yield from _conditions(node)
    for limit in _limits(node):
        match limit:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() as number):
                yield limit, ast.unparse(limit), repr(number + 1)


def _comparison(node: ast.Compare) -> Iterator[_Change]:
    is_time = CLOCK.search(ast.unparse(node)) is not None
    for index, operator in enumerate(node.ops):
        ops = list(node.ops)
        ops[index] = (CONTRARY if is_time else OPPOSITE)[type(operator)]()
        changed = ast.Compare(node.left, ops, node.comparators)
        yield node, ast.unparse(node), ast.unparse(changed)


def _boolean(node: ast.BoolOp) -> Iterator[_Change]:
    before = ast.unparse(node)
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node, before, ast.unparse(ast.BoolOp(other, node.values))
    for index in range(len(node.values)):
        rest = node.values[:index] + node.values[index + 1 :]
        yield node, before, ast.unparse(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))


def _call(node: ast.Call) -> Iterator[_Change]:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in NORMAL_FORMS:
        yield node, ast.unparse(node), ast.unparse(function.value)
    elif isinstance(function, ast.Name) and function.id in CHOICES:
        yield function, function.id, CHOICES[function.id]


def _options(node: ast.List) -> Iterator[tuple[str, str]]:
    """Return each option of a list, and the list without it."""
    for index, item in enumerate(node.elts):
        text = ast.unparse(item)
        if text.lstrip("f")[1:3] == "--":
            rest = ast.List(node.elts[:index] + node.elts[index + 1 :], ast.Load())
            yield text, ast.unparse(rest)


def _conditions(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.If) and _is_no_decision(node.test):
        return
    values: tuple[bool, ...] = ()
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.IfExp):
        tests, values = [node.test], (True, False)
    elif isinstance(node, ast.While):
        # Without its end a loop is a wait for the time limit.
        tests, values = [node.test], (False,)
    elif isinstance(node, ast.comprehension):
        tests, values = node.ifs, (True,)
    for test in tests:
        if not isinstance(test, ast.Constant):
            yield from ((test, f"if {ast.unparse(test)}", str(value)) for value in values)


def _limits(node: ast.AST) -> list[ast.expr | None]:
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.BinOp():
            return [node.left, node.right]
        case ast.keyword(value=value):
            return [value]
        case ast.arguments():
            return [*node.defaults, *node.kw_defaults]
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ) if name.isupper() and not TUNED.search(name):
            return [value]
    return []

"""The places that a Python file names by a path below the top of the repository. Pure.

`ROOT / "hgext" / name`, `Path(__file__).with_name("killed.py")`, `f"{site.HGEXT}/access.py"`: an
expression is evaluated as far as its text says. A part that is known only at run time is a `*`,
which matches anything, so a place is named rather too often than not.
"""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

UNKNOWN: Final = "*"
TOP: Final = ""
"""The place of the repository itself."""
MOST: Final = 64
"""Most alternatives of an expression; with more, it is unknown."""
DEEPEST: Final = 3
"""Levels of names that stand for names; a deeper name is unknown."""

Places = frozenset[str]
_NONE: Final[Places] = frozenset()
_SAME: Final = frozenset({"resolve", "absolute", "as_posix", "expanduser"})
_PLAIN: Final = frozenset({"Path", "PurePath", "str", "fspath", "quote", "sorted", "list"})
_NAMING: Final = (
    *(ast.Assign, ast.AnnAssign),
    *(ast.JoinedStr, ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript),
)
_OF_NAME: Final = frozenset({"name", "stem"})
_MARK: Final = "\0"
_IN_TEXT: Final = re.compile(_MARK + r"([^\s\"'`:;,()=\[\]{}|&<>\0]*)")


@dataclass
class File:
    """A Python file and the values of its names."""

    name: str
    nodes: list[ast.AST]
    listed: set[int]
    """The nodes of folders of which only the names of files are taken."""
    modules: dict[str, str] = field(default_factory=dict)
    """Names that are modules: their files."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Names that are taken from a module: its file, and the name in it."""
    bound: dict[str, list[ast.expr]] = field(default_factory=dict)
    parameters: set[str] = field(default_factory=set)
    cases: set[str] = field(default_factory=set)
    """Parameters of tests with a list of cases of their own."""


def walk(tree: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, each before its own: `ast.walk`, in a fifth of the time."""
    nodes = [tree]
    for node in nodes:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                nodes += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                nodes.append(value)
    return nodes


def read(name: str, nodes: list[ast.AST], file_of: Callable[[str], str | None]) -> File:
    """Return the values of the names of a file; `file_of` has the file of a dotted module."""
    file = File(name, nodes, _listed(nodes))
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    _bind_module(file, alias.asname or alias.name, file_of(alias.name))
            case ast.ImportFrom(names=names):
                package = name.split("/")[: -node.level] if node.level else []
                base = ".".join([*package, *([node.module] if node.module else [])])
                for alias in names:
                    own = alias.asname or alias.name
                    _bind_module(file, own, file_of(f"{base}.{alias.name}"))
                    if (origin := file_of(base)) is not None:
                        file.imported[own] = (origin, alias.name)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _bind(file, target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                _bind(file, target, value)
            case ast.NamedExpr(target=target, value=value):
                _bind(file, target, value)
            case (
                ast.For(target=target, iter=values) | ast.comprehension(target=target, iter=values)
            ):
                # A name of a comprehension is its own; names in a function are not told apart.
                for value in _elements(values) if id(target) not in file.listed else ():
                    _bind(file, target, value)
            case ast.arg(arg=parameter):
                file.parameters.add(parameter)
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[ast.Constant(value=str() as names), values, *_],
            ) if "," not in names:
                file.cases.add(names)
                for value in _elements(values):
                    _bind(file, ast.Name(names), value)
    file.parameters -= file.cases
    return file


def _bind_module(file: File, name: str, module: str | None) -> None:
    if module is not None:
        file.modules[name] = module


def _bind(file: File, target: ast.expr, value: ast.expr) -> None:
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for element, its in zip(targets, values, strict=True):
                _bind(file, element, its)
        case ast.Tuple(elts=targets), _:
            file.parameters |= {each.id for each in targets if isinstance(each, ast.Name)}
        case ((ast.Name(id=name) | ast.Attribute(attr=name)), _):
            file.bound.setdefault(name, []).append(value)


def _elements(values: ast.expr) -> list[ast.expr]:
    match values:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return elements
        case ast.Name():
            # An element of a list that has a name.
            return [ast.Starred(values)]
    # The place that is iterated, or unknown.
    return [values]


class Reader:
    """Evaluates path expressions of files that import each other."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self._files = files
        self._known: dict[tuple[str, str], Places] = {}

    def named(self, name: str) -> Places:
        """Return the places that a file names, except places to which it only gives a name."""
        file = self._files[name]
        places: set[str] = set()
        passed = set(file.listed)
        for node in file.nodes:
            if isinstance(node, _NAMING) and id(node) not in passed:
                uses, is_whole = self._uses(file, node)
                places |= uses
                if is_whole:
                    passed |= {id(inner) for inner in walk(node)}
        return frozenset(places - {TOP})

    def may_read_any(self, name: str, listings: Iterable[tuple[str, str]]) -> bool:
        """Tell whether a file names a place below the top of which nothing is known.

        Or it hands the top to a function of another file, or calls one of `listings` (a file, and a
        function in it).
        """
        file = self._files[name]
        return UNKNOWN in self.named(name) or any(
            (module, function) in listings or self._has_top(file, given)
            for module, function, given in _calls(file)
        )

    def _has_top(self, file: File, given: list[ast.expr]) -> bool:
        for value in given:
            match value:
                case ast.Call(func=ast.Name(id="str" | "fspath")):
                    pass  # a text, as in the environment of another program
                case _ if TOP in self._place(file, value):
                    return True
        return False

    def _uses(self, file: File, node: ast.AST) -> tuple[Places, bool]:
        """Return the places that a node names, and whether nodes inside it name no others."""
        match node:
            case (
                ast.Call(func=ast.Attribute(value=ast.Attribute(ast.Name("sys"), "path")))
                | ast.Assign(targets=[ast.Subscript(value=ast.Attribute(ast.Name("sys"), "path"))])
            ):
                # Where modules are found: they count where they are imported.
                return _NONE, True
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                places = self._place(file, value)
                # A folder counts where its name is used.
                files = frozenset(place for place in places if re.search(r"\.\w+$", place))
                return files, bool(places)
            case ast.JoinedStr():
                places = frozenset(self._in_text(file, node))
                return places, bool(places)
            case ast.expr():
                places = self._place(file, node)
                return places, bool(places)
        return _NONE, False

    def _in_text(self, file: File, node: ast.JoinedStr) -> Iterator[str]:
        for text in self._texts(file, node):
            for path in _IN_TEXT.findall(text):
                yield path.strip("/").removesuffix(".")

    def _place(self, file: File, node: ast.expr) -> Places:
        match node:
            case ast.Name(id=name):
                return self._of_name(file, name)
            case ast.Attribute(value=value, attr="parent"):
                return frozenset(_parent(place) for place in self._place(file, value))
            case ast.Subscript(
                value=ast.Attribute(value=value, attr="parents"),
                slice=ast.Constant(value=int() as index),
            ):
                return frozenset(_parent(place, index + 1) for place in self._place(file, value))
            case ast.Attribute(value=ast.Name(id=name), attr="__file__"):
                return frozenset({file.modules[name]} if name in file.modules else ())
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in file.modules:
                return self._exported(file.modules[name], attribute)
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                return self._of_name(file, f"self.{attribute}")
            case ast.Call(func=function, args=arguments):
                return self._called(file, function, arguments)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._below(file, self._place(file, left), right)
            case ast.IfExp(body=body, orelse=other):
                return self._place(file, body) | self._place(file, other)
            case ast.Starred(value=ast.Name() as values):
                places = (self._place(file, element) for element in self._of_list(file, values))
                return frozenset(itertools.chain.from_iterable(places)) or self._place(file, values)
        return _NONE

    def _of_list(self, file: File, name: ast.Name, depth: int = 0) -> list[ast.expr]:
        """Return the elements of the lists that a name stands for."""
        elements: list[ast.expr] = []
        for value in file.bound.get(name.id, []):
            for element in _elements(value):
                match element:
                    case ast.Starred(value=ast.Name() as inner):
                        inside = self._of_list(file, inner, depth + 1) if depth < DEEPEST else []
                        elements += inside or [inner]
                    case ast.Starred(value=inner):
                        elements.append(inner)
                    case _:
                        elements.append(element)
        return elements

    def _called(self, file: File, function: ast.expr, arguments: list[ast.expr]) -> Places:
        match function, arguments:
            case ((ast.Name(id=name) | ast.Attribute(attr=name)), [argument]) if name in _PLAIN:
                return self._place(file, argument)
            case ast.Attribute(value=value, attr=name), _ if name in _SAME:
                return self._place(file, value)
            case ast.Attribute(value=value, attr="with_name"), [argument]:
                folders = frozenset(_parent(place) for place in self._place(file, value))
                return self._below(file, folders, argument)
            case ast.Attribute(value=value, attr="joinpath" | "glob" | "rglob"), [argument]:
                return self._below(file, self._place(file, value), argument)
            case ast.Attribute(value=value, attr="iterdir"), []:
                return frozenset(f"{place}/{UNKNOWN}" for place in self._place(file, value))
        return _NONE

    def _below(self, file: File, folders: Places, node: ast.expr) -> Places:
        if not folders:
            return _NONE
        return frozenset(
            f"{folder}/{text}".strip("/") for folder in folders for text in self._texts(file, node)
        )

    def _of_name(self, file: File, name: str) -> Places:
        key = (file.name, name)
        if key not in self._known:
            self._known[key] = _NONE  # of a name that is made of itself
            if name == "__file__":
                self._known[key] = frozenset({file.name})
            elif name in file.bound:
                places = (self._place(file, value) for value in file.bound[name])
                self._known[key] = frozenset(itertools.chain.from_iterable(places))
            elif name in file.imported:
                self._known[key] = self._exported(*file.imported[name])
        return self._known[key]

    def _exported(self, module: str, name: str) -> Places:
        return self._of_name(self._files[module], name) if module in self._files else _NONE

    def _texts(self, file: File, node: ast.expr, depth: int = 0) -> Places:
        """Return the texts that an expression may be; places in them are marked."""
        match node:
            case ast.Constant(value=str() as text):
                return frozenset({text})
            case ast.JoinedStr(values=values):
                parts = [self._texts(file, value, depth) for value in values]
                if _count(parts) <= MOST:
                    return frozenset(
                        "".join(combination) for combination in itertools.product(*parts)
                    )
            case ast.FormattedValue(value=value):
                if places := self._place(file, value):
                    return frozenset(_MARK + place for place in places)
                return self._texts(file, value, depth)
            case ast.Name(id=name) if name not in file.parameters and depth < DEEPEST:
                texts = [self._texts(file, value, depth + 1) for value in file.bound.get(name, [])]
                if not texts and name in file.imported:
                    texts = [self._texts_of(*file.imported[name], depth)]
                return frozenset(itertools.chain.from_iterable(texts)) or frozenset({UNKNOWN})
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in file.modules:
                return self._texts_of(file.modules[name], attribute, depth)
            case ast.Starred(value=ast.Name() as values) if depth < DEEPEST:
                texts = [
                    self._texts(file, element, depth + 1) for element in self._of_list(file, values)
                ]
                return frozenset(itertools.chain.from_iterable(texts)) or frozenset({UNKNOWN})
        return frozenset({UNKNOWN})

    def _texts_of(self, module: str, name: str, depth: int) -> Places:
        """Return the texts that a name of another module may stand for."""
        if module in self._files and depth < DEEPEST:
            return self._texts(self._files[module], ast.Name(name), depth + 1)
        return frozenset({UNKNOWN})


def _calls(file: File) -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Yield the calls of functions of other files: their file, their name, what is given."""
    for node in file.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr=function), args=given
            ) if name in file.modules:
                yield file.modules[name], function, given
            case ast.Call(func=ast.Name(id=name), args=given) if name in file.imported:
                yield *file.imported[name], given


def _count(parts: Iterable[Places]) -> int:
    result = 1
    for part in parts:
        result *= len(part)
    return result


def _parent(place: str, levels: int = 1) -> str:
    return "/".join(place.split("/")[:-levels])


def _listed(nodes: list[ast.AST]) -> set[int]:
    """Return the nodes of folders of which a comprehension takes only the names of files."""
    listed: set[int] = set()
    for node in nodes:
        if not isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp)):
            continue
        inner = walk(node)
        of_name = {
            id(n.value) for n in inner if isinstance(n, ast.Attribute) and n.attr in _OF_NAME
        }
        for loop in node.generators:
            name = loop.target.id if isinstance(loop.target, ast.Name) else ""
            uses = {id(n) for n in inner if isinstance(n, ast.Name) and n.id == name}
            if uses - of_name == {id(loop.target)}:
                listed |= uses | {id(n) for n in walk(loop.iter)}
    return listed


class Index:
    """The files of a repository, by the places that are named."""

    def __init__(self, known: Iterable[str]) -> None:
        self.known = frozenset(known)
        self._below: dict[str, set[str]] = {}
        for name in self.known:
            for slash in re.finditer("/", name):
                self._below.setdefault(name[: slash.start()], set()).add(name)
        self._matching: dict[str, Places] = {}

    def files(self, place: str) -> Places:
        """Return the files at a place, or below it where it is a folder."""
        if place in self.known:
            return frozenset({place})
        # A place unknown from the top on would be every file: strings of the file say which.
        if UNKNOWN not in place or place.startswith(UNKNOWN):
            return frozenset(self._below.get(place, ()))
        if place not in self._matching:
            text = re.escape(re.sub(r"\*+", UNKNOWN, place)).replace(re.escape(UNKNOWN), ".*")
            pattern = re.compile(f"{text}(?:/.*)?")
            self._matching[place] = frozenset(n for n in self.known if pattern.fullmatch(n))
        return self._matching[place]

"""The graph of imports and references between the files of this repository. Pure functions.

A test that is not chosen must not depend on the changed file, so a reference counts twice:

| file | refers to |
| --- | --- |
| Python | the modules that it imports at run time, and the packages around them |
| a test | also `conftest.py` of its folders; modules and paths in strings: `-m hgfleet.x` |
| data of a package | nothing; the modules beside it refer to it |
| `.t` story | the paths and modules in its text, and the scripts beside it that it names |

Imports for type checkers alone do not count: mypy reads the whole package each time.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOTS: Final = ("", "docker/", "ansible/")
"""Folders that are on the path of modules, as prefixes of a file's name."""

_MODULE = re.compile(r"\b(?:hgfleet|hgext|testing|bootstrap|localcluster)(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"\b(?:hgfleet|hgext|testing|docker|ansible|docs)/[\w./-]*\w")
_FILE_NAME = re.compile(r"\b[\w-]+\.(?:sh|py)\b")


def graph(sources: Mapping[str, str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the files, out of `names`, to which each file of `sources` (name to text) refers."""
    known = set(names) | set(sources)
    modules = module_names(known)
    result = {}
    for name, text in sources.items():
        if name.endswith(".py"):
            found = set(_of_python(name, text, modules, known))
        elif name.endswith(".t"):
            found = set(_of_text(text, modules, known))
            folder = name.rpartition("/")[0]
            beside = {f"{folder}/{file}" for file in _FILE_NAME.findall(text)}
            found |= beside & known
        else:
            continue
        result[name] = frozenset(found - {name})
    return result


def dependents(changed: Iterable[str], references: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the changed files and every file that refers to one, directly or not."""
    referring: dict[str, set[str]] = {}
    for name, targets in references.items():
        for target in targets:
            referring.setdefault(target, set()).add(name)
    found = set(changed)
    waiting = list(found)
    while waiting:
        new = referring.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def reached(begin: Iterable[str], references: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the files from which one begins and all to which they refer, directly or not."""
    found = set(begin)
    waiting = list(found)
    while waiting:
        new = references.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return found


def module_names(files: Iterable[str]) -> dict[str, str]:
    """Return the dotted name of every Python file: `hgfleet.web` is hgfleet/web/__init__.py."""
    result = {}
    for file in files:
        if not file.endswith(".py"):
            continue
        for root in ROOTS:
            if file.startswith(root):
                dotted = file.removeprefix(root).removesuffix(".py").replace("/", ".")
                result[dotted.removesuffix(".__init__")] = file
    return result


def _of_python(name: str, text: str, modules: Mapping[str, str], known: set[str]) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return  # the linters say so
    for dotted in _imports(tree, name):
        yield from _files_of(dotted, modules)
    folders = name.split("/")[:-1]
    if folders[:1] == ["hgfleet"] and folders[1:]:
        yield from (file for file in known if _is_data_of("/".join(folders), file))
    if folders[:1] != ["testing"] or folders[1:2] in (["runner"], ["tools"]):
        return
    for depth in range(1, len(folders) + 1):
        conftest = "/".join([*folders[:depth], "conftest.py"])
        if conftest in known:
            yield conftest
    for string in _strings(tree):
        yield from _of_text(string, modules, known)


def _imports(tree: ast.Module, name: str) -> Iterator[str]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            # Of these there is one kind: `if TYPE_CHECKING:`.
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = name.split("/")[: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def _strings(tree: ast.Module) -> Iterator[str]:
    # Docstrings mention modules that the file does not use.
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def _of_text(text: str, modules: Mapping[str, str], known: set[str]) -> Iterator[str]:
    for dotted in _MODULE.findall(text):
        yield from _files_of(dotted, modules)
    for path in _PATH.findall(text):
        if path in known:
            yield path
        else:
            # A folder, which the test reads or copies.
            yield from (name for name in known if name.startswith(f"{path}/"))


def _is_data_of(folder: str, file: str) -> bool:
    return file.startswith(f"{folder}/") and not file.endswith(".py")


def _files_of(dotted: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Return the file of a module and those of the packages around it, which Python loads too."""
    parts = dotted.split(".")
    for count in range(1, len(parts) + 1):
        file = modules.get(".".join(parts[:count]))
        if file:
            yield file

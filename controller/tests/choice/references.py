"""The graph of imports and references between the files of this repository. Pure functions.

A test that is not chosen must not depend on the changed file, so a reference counts twice rather
than not at all:

| file | refers to |
| --- | --- |
| Python | the modules that it imports at run time, and the packages around them |
| | places that it makes of its own or of others: `ROOT / "hgext" / name` (paths.py) |
| | modules that it starts: `hgfleet.storage.worker` |
| a module of `hgfleet` | the data of its package, in the same folder |
| Python of no package | modules and paths in its strings; names of files at the top |
| a test | also `conftest.py` of its folders; the part of `hgfleet PART` |
| | ANY, where it may read any file: `ROOT / name`, `worktree.files()`, `problems(ROOT)` |
| Python that imports or starts Ansible | its settings; a test that imports it also the plug-ins |
| a story | `conftest.py`, and the plug-in that runs it |
| a story, a script, a template, a playbook, a role | the files that it names (texts.py) |
| `./deploy` | files that it may start, and the parts of `hgfleet PART` that these run |

Imports only for type checkers do not count: mypy reads the whole package each time.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.tests.choice import paths, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

COMMAND: Final = "hgfleet/cli.py"
MAIN: Final = "hgfleet/__main__.py"
STORIES: Final = "testing/support/tfiles.py"
RUNNER: Final = "controller/tests/"
"""Its tables name folders, of which it reads nothing."""
LISTINGS: Final = tuple((f"{RUNNER}worktree.py", name) for name in ("files", "sources"))
"""Functions that list and read the files of this checkout."""
TOOLS: Final = (RUNNER, "controller/checks/", "testing/support/")
"""Modules that start tests and search them; their own tests do not."""
CONTROLLER: Final = (
    "controller/attestation.py",
    "controller/bootstrap.py",
    "controller/cluster/",
    "controller/deploy/",
)
"""Modules that start playbooks and make keys of whole folders; their tests do neither."""
PROGRAMS: Final = dict.fromkeys(
    ("deploy", "cluster"), ("ansible", "controller/cluster", "controller/deploy", "docker")
)
"""Programs at the top, and the folders of the files that they start."""
ANY: Final = "*"
"""The target of a test that may read every file."""
SETTINGS: Final = "ansible.cfg"
PLUGINS: Final = "ansible/plugins"
PLAIN: Final = ("hgfleet/", "hgext/")
"""Folders whose Python names paths of hosts in its strings, and none of this repository."""

_SHEBANG: Final = re.compile(r"#!.*\bpython")
_TEST: Final = re.compile(r"/(?:test_\w+\.py|test-[\w-]+\.t)$")
_ANSIBLE: Final = re.compile(r"ansible-(?:playbook|inventory)")
_STARTED: Final = re.compile(r"hgfleet(?:\.\w+)+")
_RUNS_COMMAND: Final = re.compile(r"(?:-m |run_module\('|bin/)hgfleet(?:$|[ '])")


def graph(sources: Mapping[str, str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the files, out of `names`, to which each file of `sources` (name to text) refers."""
    index = paths.Index([*names, *sources])
    modules = texts.module_names(index.known)
    trees = {name: nodes for name in sources if (nodes := _nodes(name, sources[name]))}
    files = {name: paths.read(name, nodes, modules.get) for name, nodes in trees.items()}
    commands = _commands(trees.get(COMMAND, []))
    places = paths.Reader(files)
    repository = _Repository(index, modules, commands, places)
    result = {}
    for name, text in sources.items():
        referred: set[str] = set()
        if name in trees:
            referred |= set(repository.of_python(name, trees[name]))
            for folder in PROGRAMS.get(name, ()):
                referred |= index.files(folder)
            if name in PROGRAMS:
                referred |= set(
                    repository.of_started(trees[file] for file in referred & set(trees))
                )
        elif name.endswith(texts.KINDS) or text.startswith("#!"):
            referred |= set(texts.of_file(name, text, modules, index))
        elif not name.endswith(".py"):
            continue
        if _TEST.search(name) or name.endswith("/conftest.py"):
            referred |= set(repository.around_test(name))
        if name in trees and _TEST.search(name) and places.may_read_any(name, LISTINGS):
            referred.add(ANY)
        result[name] = frozenset(referred - {name})
    return result


def _nodes(name: str, text: str) -> list[ast.AST]:
    if not name.endswith(".py") and not _SHEBANG.match(text):
        return []
    try:
        return paths.walk(ast.parse(text))
    except SyntaxError:
        return []  # the linters say so


def dependents(changed: Iterable[str], references: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the changed files and every file that refers to them, directly or not."""
    referring: dict[str, set[str]] = {}
    for name, targets in references.items():
        for target in targets:
            referring.setdefault(target, set()).add(name)
    return reached(changed, referring)


def reached(begin: Iterable[str], references: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the files of `begin` and all to which they refer, directly or not."""
    names = set(begin)
    waiting = list(names)
    while waiting:
        new = set(references.get(waiting.pop(), ())) - names
        names |= new
        waiting += new
    return names


@dataclass(frozen=True)
class _Repository:
    """The tables in which a reference is looked up."""

    index: paths.Index
    modules: Mapping[str, str]
    commands: Mapping[str, str]
    """Per part of the command `hgfleet` its module."""
    places: paths.Reader

    def of_python(self, name: str, nodes: list[ast.AST]) -> Iterator[str]:
        """Yield the files to which Python refers, and perhaps itself."""
        folder = name.rpartition("/")[0]
        imported = set()
        for dotted in _imports(nodes, name):
            imported |= set(texts.files_of(dotted, self.modules))
            # A program imports the modules in its folder.
            imported |= {f"{folder}/{dotted.partition('.')[0]}.py"} & self.index.known
            if dotted.partition(".")[0] == "ansible" and dotted not in self.modules:
                imported |= self._of_ansible(name)
        yield from imported
        if name.startswith("hgfleet/") and folder != "hgfleet":
            yield from (file for file in self.index.files(folder) if not file.endswith(".py"))
        named = {file for place in self.places.named(name) for file in self.index.files(place)}
        strings = _strings(nodes)
        if name.startswith(PLAIN):
            started = (string for string in strings if _STARTED.fullmatch(string))
            if name != COMMAND:
                named |= {self.modules[dotted] for dotted in started if dotted in self.modules}
        elif not name.startswith(RUNNER):
            named |= set(self._of_strings(strings))
            named |= set(self._of_command(strings, is_imported=COMMAND in imported))
        yield from (file for file in named if not _is_started(name, file))
        if any(_ANSIBLE.fullmatch(string) for string in strings):
            yield from self.index.files(SETTINGS)

    def _of_ansible(self, name: str) -> frozenset[str]:
        """Return the files that Ansible itself reads as it is imported and renders a text."""
        plugins = self.index.files(PLUGINS) if _TEST.search(name) else frozenset()
        return self.index.files(SETTINGS) | plugins

    def of_started(self, modules: Iterable[list[ast.AST]]) -> Iterator[str]:
        """Yield the modules of `hgfleet PART` that a program's modules start."""
        for nodes in modules:
            yield from self._of_command(_strings(nodes), is_imported=False)

    def _of_strings(self, strings: list[str]) -> Iterator[str]:
        for string in strings:
            yield from texts.named(string, self.modules, self.index)
            if "." in string and "/" not in string and string in self.index.known:
                yield string

    def _of_command(self, strings: list[str], *, is_imported: bool) -> Iterator[str]:
        """Yield the modules of `hgfleet PART`, which the command imports by name."""
        is_started = {"-m", "hgfleet"} <= set(strings) or any(map(_RUNS_COMMAND.search, strings))
        if is_started or is_imported:
            yield from {MAIN, COMMAND} & self.index.known
            words = {word for string in strings for word in re.findall(r"\w+", string)}
            for part in words & set(self.commands):
                yield from texts.files_of(self.commands[part], self.modules)

    def around_test(self, name: str) -> Iterator[str]:
        folders = name.split("/")[:-1]
        for depth in range(1, len(folders) + 1):
            yield from {"/".join([*folders[:depth], "conftest.py"])} & self.index.known
        if name.endswith(".t"):
            yield from {STORIES} & self.index.known


def _is_started(starter: str, name: str) -> bool:
    """Whether a module does not depend on a file that it names, as it starts it or counts it."""
    if starter.startswith(CONTROLLER):
        return not name.startswith(("controller/", "docker/"))
    return starter.startswith(TOOLS) and _TEST.search(name) is not None


def _commands(nodes: list[ast.AST]) -> dict[str, str]:
    """Return the table `PARTS` of the command line: its parts and their modules."""
    result = {}
    for node in nodes:
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    match key, value:
                        case (
                            ast.Constant(value=str() as part),
                            ast.Tuple(elts=[ast.Constant(value=str() as module), *_]),
                        ):
                            result[part] = module
    return result


def _imports(nodes: list[ast.AST], name: str) -> Iterator[str]:
    typed: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            # There is only one kind of these: `if TYPE_CHECKING:`.
            typed |= {id(inner) for statement in node.body for inner in paths.walk(statement)}
        elif isinstance(node, ast.Import) and id(node) not in typed:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and id(node) not in typed:
            package = name.split("/")[: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _strings(nodes: list[ast.AST]) -> list[str]:
    # Docstrings mention modules that the file does not use.
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (n for n in nodes if isinstance(n, ast.Constant) and id(n) not in prose)
    return [node.value for node in constants if isinstance(node.value, str)]

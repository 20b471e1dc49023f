"""Refuses things that two tests share if they may run at the same time on the cluster.

    .venv/bin/python -m controller.checks.sharing

Tests of different parts (`testing/e2e/turns.py`) run at the same time, unless a test is `alone`. So
in `testing/e2e` and `testing/faults`:

1. A repository below `e2e/`, `sandbox/` or `people/` is named by files of a single part. A file of
   another part may read it if `READ` lists that file; that file makes no SSH address of it, by
   which it could push.
2. A person whose account or given keys a test changes is used only by files of the same part. To
   push as alice into a repository of the test's own part is fine, and so is a further key.
3. A test that stops, restarts or kills a unit or a host is `alone` or `disruptive`, also if a
   fixture or a function of its file does so. The fixtures of `OWNERS` break parts under a lock.

A test that is `alone` on the whole cluster shares nothing. Names are read from the source, also
from constants of the file and from imported constants; a name that is put together at run time is
not seen.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testing.e2e.turns import ROOT, Wants, part_of, wants_of_id

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS: Final = ("testing/e2e", "testing/faults")

READ: Final = {
    # Metrics do not name it; mirrors hide it; a fork of it is private; MISSING is no repository.
    "e2e/private": ("test_monitoring", "test_replication", "test_selfservice"),
    "e2e/pryvate": ("test_replication",),
    "e2e/confidential": ("test_monitoring",),
    # The probes of monitor1 clone it.
    "sandbox/smoke": ("test_private_bundles",),
}
"""Files that read a repository of another part."""

NEVER_PUSHED: Final = frozenset({"sandbox/smoke", "sandbox/playground"})
"""Repositories to which every push of a test is refused."""

OWNERS: Final = {"faults": ("logins",), "store_faults": ("stores",), "stopped": ()}
"""Fixtures that break something, and the parts whose tests may use them without `alone`."""

REPOSITORY: Final = re.compile(r"(?:e2e|sandbox|people)/[\w.-]+(?:/[\w.-]+)*")
BREAKS: Final = re.compile(
    r"\b(systemctl|docker)\b.*?\b(stop|restart|kill|mask|pause|disconnect)\b", re.DOTALL
)
CHANGES_A_PERSON: Final = ("modify", "change")
"""Calls that change an account or given keys. A further key disturbs no other test."""
FIXTURES_OF_PEOPLE: Final = {"carols_entry": "carol", "carol_may_be_disabled": "carol"}
PEOPLE: Final = ("alice", "bob", "carol", "mallory")


@dataclass
class File:
    """The claims of a file, outside of tests that are `alone` on the cluster."""

    path: str
    repositories: set[str] = field(default_factory=set)
    pushable: set[str] = field(default_factory=set)
    """Repositories whose SSH address a test makes."""
    people: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    """People whom a test changes."""
    wants: set[Wants] = field(default_factory=set)
    breaking: dict[str, str] = field(default_factory=dict)
    """Tests that are not `alone`, and the first call or fixture that breaks something."""

    @property
    def name(self) -> str:
        """The name of the file, as parts have it."""
        return Path(self.path).stem

    def runs_beside(self, other: File) -> bool:
        """Tell whether tests of the two files may run at the same time."""
        if part_of(self.path) == part_of(other.path):
            return False
        return any(not own.excludes(wants) for own in self.wants for wants in other.wants)


def constants(tree: ast.Module, top: Path) -> dict[str, str]:
    """Return the strings that names of a module stand for, its own names and imported names."""
    strings: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("testing."):
            path = top / f"{str(node.module).replace('.', '/')}.py"
            other = constants(ast.parse(path.read_text("utf-8")), top) if path.is_file() else {}
            names = {alias.asname or alias.name: alias.name for alias in node.names}
            strings |= {name: other[value] for name, value in names.items() if value in other}
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            strings[target.id] = str(value.value)
    return strings


def functions(nodes: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield functions and methods with their names in node ids."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{node.name}::")


def _names(node: ast.AST) -> set[str]:
    """Return the names, arguments (fixtures) and strings in a function."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    names |= {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    return names | set(_strings(node))


def _strings(node: ast.AST) -> list[str]:
    values = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    return [value for value in values if isinstance(value, str)]


def _breaks(used: list[ast.FunctionDef], part: str) -> str:
    """Return the first call in a test's functions that stops something, "" without such a call."""
    for node in used:
        for fixture in sorted(
            {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
        ):
            if fixture in OWNERS and part not in OWNERS[fixture]:
                return f"the fixture {fixture}"
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            if match := BREAKS.search(ast.unparse(call)):
                return f"{node.name}: {match[1]} {match[2]}"
            if ast.unparse(call.func) == "Faults" and part not in OWNERS["store_faults"]:
                return f"{node.name}: Faults"
    return ""


def read(path: str, top: Path = ROOT) -> File:
    """Read a file of tests."""
    tree = ast.parse((top / path).read_text("utf-8"))
    known, file = constants(tree, top), File(path)
    all_functions = dict(functions(tree.body))
    wanted = {
        name: wants_of_id(f"{path}::{name}", top)
        for name in all_functions
        if name.rpartition("::")[2].startswith("test_")
    }
    shared = [name for name, wants in wanted.items() if not wants.whole]
    if not shared:
        return file
    file.wants = {wanted[name] for name in shared}
    bodies = {name.rpartition("::")[2]: node for name, node in all_functions.items()}
    below = {name: _names(node) for name, node in bodies.items()}
    for name in shared:
        own = name.rpartition("::")[2]
        reached = _reached(own, below)
        used = [bodies[inner] for inner in sorted({own, *(reached & set(bodies))})]
        for node in used:
            _claims(node, known, file)
        file.changed |= {FIXTURES_OF_PEOPLE[f] for f in reached & set(FIXTURES_OF_PEOPLE)}
        what = "" if wanted[name].alone else _breaks(used, part_of(path))
        if what:
            file.breaking[name] = what
    return file


def _reached(name: str, below: dict[str, set[str]]) -> set[str]:
    """Return all names in a function and in the functions of its file that it uses."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        for inner in below.get(waiting.pop(), set()) - reached:
            reached.add(inner)
            waiting.append(inner)
    return reached


def _claims(node: ast.FunctionDef, known: dict[str, str], file: File) -> None:
    """Add the claims of a function to the claims of its file."""
    used = {known.get(name, name) for name in _names(node)}
    file.repositories |= {name for name in used if REPOSITORY.fullmatch(name)}
    file.people |= used & set(PEOPLE)
    for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
        if not isinstance(call.func, ast.Attribute):
            continue
        words = [known.get(name, name) for argument in call.args for name in _names(argument)]
        if call.func.attr == "ssh_url":
            file.pushable |= {word for word in words if REPOSITORY.fullmatch(word)}
        if call.func.attr in CHANGES_A_PERSON:
            file.changed |= set(words) & set(PEOPLE)


def conflicts(files: list[File]) -> list[str]:
    """Return a line for each thing that files of a tier share and may not share."""
    result = []
    for first, second in combinations(files, 2):
        if not first.runs_beside(second):
            continue
        for name in sorted(first.repositories & second.repositories):
            readers = [file for file in (first, second) if file.name in READ.get(name, ())]
            pushing = [file for file in readers if name in file.pushable - NEVER_PUSHED]
            if not readers:
                result.append(
                    f"{first.path} and {second.path}: both use the repository {name}, and run at "
                    "the same time; use separate repositories, or put both into one part of PARTS "
                    "in testing/e2e/turns.py, or list the file that only reads it in READ"
                )
            result += [f"{f.path}: READ says it reads {name}, and it may push" for f in pushing]
        for name in sorted(first.changed & second.people | second.changed & first.people):
            result.append(
                f"{first.path} and {second.path}: one changes {name}, whom the other uses, and "
                "they run at the same time; mark the test that changes as `alone`, or put both "
                "into the same part"
            )
    return result


def problems(top: Path = ROOT) -> list[str]:
    """Return a line for each thing that tests of the cluster share and may not share."""
    result = []
    named: defaultdict[str, set[str]] = defaultdict(set)
    for folder in FOLDERS:
        paths = sorted(str(p.relative_to(top)) for p in (top / folder).rglob("test_*.py"))
        files = [read(path, top) for path in paths]
        result += conflicts(files)
        for file in files:
            for test, what in file.breaking.items():
                result.append(
                    f"{file.path}::{test}: {what} during the tests of other workers; mark it as "
                    "`alone` or `disruptive`"
                )
            for name in file.repositories:
                named[name].add(file.name)
    result += [
        f"READ: {file} does not name {name}"
        for name, readers in READ.items()
        for file in readers
        if named and file not in named[name]
    ]
    return result


def main() -> int:
    """Print every problem; the exit code is 1 if there is any."""
    lines = problems()
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

"""Which end-to-end tests may run at the same time on the cluster (pytest-xdist).

Three rules make workers safe, and keep them busy:

1. Tests of a part of `PARTS` run in the same worker, in their order: they change the same
   repositories and people. A file that is in no part is a part of its own.
   `controller/checks/sharing.py` refuses tests of two parts that change the same thing.
2. A test marked `alone` or `disruptive` has the cluster to itself: it reads all that a host logs,
   compares a host before and after, or stops parts of the service. These tests run after all
   others, so that no worker waits for them in the middle of its parts.
3. `alone("stores")` has only that resource to itself: tests marked `without("stores")`, which do
   not need it, run at the same time. It stays at its place in its part.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

PARTS: Final = {
    # Change people or the directory, or sign in by password; push to e2e/push, shared and private.
    # The converge of the whole cluster sees each of these changes.
    "people": (
        "test_idempotence",
        "test_access",
        "test_directory",
        "test_former_person",
        "test_other_clients",
        "test_person",
        "test_private",
        "test_private_bundles",
        "test_private_https",
        "test_push",
        "test_ssh_server",
    ),
    # Clone and pull the repository hgfleet, and read the web part's log about it.
    "clones": ("test_clone", "test_pullbundles", "test_foreign_clients", "test_limits"),
    # Change the registry of repositories that people made.
    "registry": ("test_selfservice", "test_storage"),
    # Push to e2e/replication, and follow the pushes on mirrors and in logs.
    "replication": ("test_replication", "test_log"),
    # Back the primary up, and count the pushes since.
    "backups": ("test_backup", "test_integrity"),
    # Compare the SSH host before and after each test.
    "abuse": (
        "test_abuse_commands",
        "test_abuse_directory",
        "test_abuse_https",
        "test_abuse_logins",
        "test_abuse_paths",
        "test_abuse_wire",
    ),
    "outages": ("test_ssh_sessions", "test_reboot"),
    # In the tier `faults`.
    "stores": ("test_fault_stores", "test_fault_admission"),
    "logins": ("test_fault_directory", "test_fault_clock", "test_fault_logs"),
    # Run at the same time: the former needs no monitoring, the latter needs no stores.
    "bundles away": ("test_objectstore",),
    "monitoring": ("test_dashboards", "test_journals"),
}
"""Files by part. Parts begin in this order; files without a part begin before `LATE`."""

LATE: Final = ("bundles away", "monitoring")
"""Parts that have a resource to themselves, and run at the same time."""

RESOURCES: Final = ("rest", "stores", "monitoring")
"""The parts of the service that a test may have to itself: object stores with their caches and the
offers of bundles, the hosts of monitoring, and the rest."""

_PART_OF: Final = {file: part for part, files in PARTS.items() for file in files}
_FILES: Final = tuple(_PART_OF)
_ALONE: Final = ("alone", "disruptive")


@dataclass(frozen=True)
class Wants:
    """The resources that a test has to itself, and the resources that it shares."""

    alone: frozenset[str]
    shared: frozenset[str]

    @property
    def whole(self) -> bool:
        """Tell whether the test has the whole cluster to itself."""
        return self.alone == frozenset(RESOURCES)

    def excludes(self, other: Wants) -> bool:
        """Tell whether two tests cannot run at the same time."""
        return bool(self.alone & (other.alone | other.shared) or other.alone & self.shared)


def wants(marks: Iterable[tuple[str, tuple[str, ...]]]) -> Wants:
    """Return the wants of a test with these marks (name and arguments)."""
    everything = frozenset(RESOURCES)
    alone: frozenset[str] = frozenset()
    shared = everything
    for name, words in marks:
        if name not in (*_ALONE, "without"):
            continue  # "parametrize" has lists
        if unknown := set(words) - everything:
            raise ValueError(f"{name}: got {sorted(unknown)}, expected some of {RESOURCES}")
        if name in _ALONE:
            alone |= frozenset(words) or everything
        else:
            shared -= frozenset(words)
    return Wants(alone, shared - alone)


def wants_of(item: pytest.Item) -> Wants:
    """Return the wants of a collected test."""
    return wants((mark.name, mark.args) for mark in item.iter_markers())


@cache
def _marks_of_file(path: Path) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Return the marks of each function and class of a file by name; marks of the file as ""."""
    marks: dict[str, list[tuple[str, tuple[str, ...]]]] = {}

    def read(nodes: Iterable[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                many = isinstance(node.value, ast.List | ast.Tuple)
                values = node.value.elts if many else [node.value]  # type: ignore[attr-defined]
                marks[""] = [mark for value in values if (mark := _mark(value))]
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                decorators = [mark for value in node.decorator_list if (mark := _mark(value))]
                marks[f"{prefix}{node.name}"] = decorators
            if isinstance(node, ast.ClassDef):
                read(node.body, f"{node.name}::")

    read(ast.parse(path.read_text("utf-8")).body, "")
    return marks


def _mark(node: ast.expr) -> tuple[str, tuple[str, ...]] | None:
    words: tuple[str, ...] = ()
    if isinstance(node, ast.Call):
        words = tuple(str(a.value) for a in node.args if isinstance(a, ast.Constant))
        node = node.func
    name = ast.unparse(node)
    known = (*_ALONE, "without")
    mark = name.removeprefix("pytest.mark.")
    return (mark, words) if mark != name and mark in known else None


def wants_of_id(nodeid: str, root: Path = ROOT) -> Wants:
    """Return the wants of a test by its file, since the scheduling process does not load it."""
    file, _, name = nodeid.partition("[")[0].partition("::")
    path = root / file
    marks = _marks_of_file(path) if path.is_file() else {}
    outer = name.rpartition("::")[0]
    return wants(
        [*marks.get("", []), *(marks.get(outer, []) if outer else []), *marks.get(name, [])]
    )


def file_of(nodeid: str) -> str:
    """Return the name of a test's file."""
    return Path(nodeid.partition("::")[0]).stem


def part_of(nodeid: str) -> str:
    """Return the part of a test."""
    return _PART_OF.get(file_of(nodeid), file_of(nodeid))


def scope_of(nodeid: str, root: Path = ROOT) -> str:
    """Return the name of the tests that stay in a worker: a part, or its exclusive tests.

    Exclusive tests may be in any worker, since nothing else runs during them.
    """
    return f"{part_of(nodeid)}, alone" if wants_of_id(nodeid, root).whole else part_of(nodeid)


def order(nodeid: str, root: Path = ROOT) -> tuple[bool, int, str]:
    """Return the key that sorts tests by phase, part and file; each file keeps its order."""
    file = file_of(nodeid)
    alone = wants_of_id(nodeid, root).whole
    if file not in _PART_OF:
        return alone, len(_FILES), file
    late = len(_FILES) + 1 if part_of(nodeid) in LATE else 0
    return alone, late + _FILES.index(file), ""


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # published without types
    """Gives a worker the next part when its current part is nearly done."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


class Turns:
    """Rooms that tests enter; a test that wants a room to itself waits until all others have left.

    Tests enter in turn through the door. A test that waits for an empty room holds the door, so a
    steady stream of other tests cannot keep it waiting.
    """

    def __init__(self, folder: Path, name: str, rooms: Iterable[str] = ("room",)) -> None:
        folder.mkdir(exist_ok=True)
        self._door = (folder / f"{name}.door").open("w")
        self._rooms = {room: (folder / f"{name}.{room}").open("w") for room in rooms}
        self._inside = False

    def enter(self, *, alone: Iterable[str] = (), shared: Iterable[str] = ()) -> None:
        """Wait for the turn of a test, unless the previous test has kept its turn."""
        if self._inside:
            return
        alone = frozenset(alone)
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            for room in sorted({*alone, *shared}):
                kind = fcntl.LOCK_EX if room in alone else fcntl.LOCK_SH
                fcntl.flock(self._rooms[room], kind)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        self._inside = True

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Enter all rooms, and leave at the end."""
        self.enter(**{"alone" if alone else "shared": tuple(self._rooms)})
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """End the turn."""
        self._inside = False
        for room in self._rooms.values():
            fcntl.flock(room, fcntl.LOCK_UN)

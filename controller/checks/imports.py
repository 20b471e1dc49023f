"""Direction of imports between the packages of hgfleet and their rooms, and circles of modules.

    core <- {directory, policies, hg <- pushlog, objectstore, admission} <- registry
         <- {{auth, backup} <- selfservice <- ssh, auth <- web, storage, bundles <- steering,
             {auth, storage, bundles} <- replication <- webhooks} <- hgext
    {backup, replication} <- integrity; {hg, objectstore} <- probes;
    {integrity, steering, probes, ssh, web} <- monitoring; core <- {acme, logs}

The rooms of a large package, which are the folders in it, have an order of their own (`ROOMS`).

Imports only for types and imports inside functions count too: a reader has to know both modules in
each case. `hgfleet.cli` may import every part.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PACKAGE: Final = "hgfleet"

BELOW: Final[Mapping[str, tuple[str, ...]]] = {
    "core": (),
    "directory": ("core",),
    "policies": ("core",),
    "hg": ("core",),
    "pushlog": ("hg",),
    "objectstore": ("core",),
    "admission": ("core",),
    "acme": ("core",),
    "logs": ("core",),
    "registry": ("directory", "policies", "pushlog", "objectstore", "admission"),
    "auth": ("registry",),
    "backup": ("registry",),
    "selfservice": ("auth", "backup"),
    "ssh": ("selfservice",),
    "web": ("auth",),
    "storage": ("registry",),
    "bundles": ("registry",),
    "steering": ("bundles",),
    "replication": ("auth", "storage", "bundles"),
    "webhooks": ("replication",),
    "integrity": ("backup", "replication"),
    "probes": ("hg", "objectstore"),
    "monitoring": ("integrity", "steering", "probes", "ssh", "web"),
}
"""The packages right below each package. A package may import all packages below it."""

BESIDE: Final = "."
"""The modules of a package outside of its rooms, but for the modules that the order names."""

ROOMS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "backup": {
        "run_records": (),
        "states": (),
        "restic": ("run_records",),
        "point": (),
        "run": ("point", "restic", "states"),
        "restores": ("run",),
        BESIDE: ("restores",),
    },
    "bundles": {
        "decide": (),
        "hg": ("decide",),
        "stores": ("decide",),
        "steps": ("hg", "stores"),
        BESIDE: ("steps",),
    },
    "core": {BESIDE: (), "daemons": (BESIDE,)},
    "hg": {"sessions": (), BESIDE: ("sessions",)},
    "registry": {
        "owned_files": (),
        "model": (),
        "dynamic": ("owned_files", "model"),
        "provision": ("dynamic",),
        BESIDE: ("provision",),
    },
    # The primary and a mirror know each other only by what lies below both.
    "replication": {
        "protocol": (),
        "repositories": ("protocol",),
        "documents": ("repositories",),
        "terms": ("documents",),
        "source": ("terms",),
        "primary": ("source",),
        "mirror": ("source",),
        "promotion": ("primary", "mirror"),
        "events": ("repositories",),
        BESIDE: ("promotion", "events"),
    },
    "ssh": {"keys": (), "session": (), BESIDE: ("keys", "session")},
    "web": {
        "http": (),
        "pushlog": ("http",),
        "engine": ("pushlog",),
        "rendering": ("engine",),
        "requests": ("rendering",),
        "index": ("requests",),
        BESIDE: ("index",),
    },
}
"""Of each package with rooms: the rooms, or modules outside of rooms, right below each room."""

LOOSE: Final = frozenset({"__init__", "__main__", "cli"})
"""Modules that lie outside of the packages."""


def allowed(part: str, below: Mapping[str, tuple[str, ...]] = BELOW) -> set[str]:
    """Return the packages that a package may import, or rooms that a room may; with itself."""
    return {part}.union(*(allowed(under, below) for under in below[part]))


def room_of(module: str, order: Mapping[str, tuple[str, ...]]) -> str:
    """Return the room of a module, or its own name where the order names it."""
    name, _, rest = ".".join(module.split(".")[2:]).partition(".")
    return name if rest or name in order else BESIDE


def imports(text: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the module of each import of these modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` counts as an import of only the module.
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in inner if name in modules]
            names += [node.module] if len(names) < len(inner) else []
        else:
            continue
        yield from ((node.lineno, name) for name in names if name in modules)


def problems(top: Path) -> list[str]:
    """Return a line for each import in the wrong direction, each circle and each loose module."""
    files = {_module(path, top): path for path in sorted((top / PACKAGE).rglob("*.py"))}
    modules = set(files)
    result = []
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        part = module.split(".")[1] if "." in module else "__init__"
        imported = list(imports(path.read_text(encoding="utf-8"), modules))
        graph[module] = {name for _, name in imported} - {module}
        if path.parent == top / PACKAGE:
            if path.stem not in LOOSE:
                result.append(f"{path}:1: a module outside of the packages; put it into a package")
        elif part not in BELOW:
            result.append(f"{path}:1: the package {part} has no place in the order of imports")
        else:
            below = allowed(part)
            result += [
                f"{path}:{line}: {part} imports {name}; it may import {', '.join(sorted(below))}"
                for line, name in imported
                if name != PACKAGE and name.split(".")[1] not in below
            ]
            result += [f"{path}:{line}: {text}" for line, text in _of_rooms(module, part, imported)]
    for path in sorted((top / "hgext").glob("*.py")):
        result += [
            f"{path}:{line}: an extension imports {name}; it may import the packages of hgfleet"
            for line, name in imports(path.read_text(encoding="utf-8"), modules)
            if name.count(".") == 1 and name.split(".")[1] in LOOSE
        ]
    result += [
        f"{top / PACKAGE}: a circle of imports: {' -> '.join(way)}" for way in circles(graph)
    ]
    return result


def _of_rooms(
    module: str, part: str, imported: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, str]]:
    """Yield the problems of a module's room and of its imports from other rooms."""
    order = ROOMS.get(part, {BESIDE: ()})
    room = room_of(module, order)
    if room not in order:
        yield 1, f"the room {part}.{room} has no place in the order of imports"
        return
    below = allowed(room, order)
    for line, name in imported:
        if name.startswith(f"{PACKAGE}.{part}.") and room_of(name, order) not in below:
            may = ", ".join(sorted(below - {BESIDE}))
            yield line, f"the room {part}.{room} imports {name}; it may import {may}"


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return a circle of each group of modules that import each other."""
    ways = []
    seen: set[str] = set()
    for start in sorted(graph):
        if start not in seen and (way := _way_back(graph, start)):
            ways.append(way)
            seen.update(way)
    return ways


def _way_back(graph: Mapping[str, set[str]], start: str) -> list[str] | None:
    """Return the shortest way from a module to itself."""
    ways = [[start]]
    visited: set[str] = set()
    for way in ways:
        for name in sorted(graph.get(way[-1], ())):
            if name == start:
                return [*way, start]
            if name not in visited:
                visited.add(name)
                ways.append([*way, name])
    return None


def _module(path: Path, top: Path) -> str:
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

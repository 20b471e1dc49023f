"""Direction of imports between the parts of controller/, and circles in controller/ and testing/.

    bootstrap <- attestation <- cluster <- deploy <- tests <- checks

`entry` finds the other parts by name. Only `tests` and `checks`, which run and read everything, may
import hgfleet and testing: the others run before anything is installed, or on a machine that tests
nothing. As in `imports.py`, imports only for types and imports inside functions count too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.checks.imports import circles, imports

if TYPE_CHECKING:
    from pathlib import Path

ORDER: Final = ("bootstrap", "attestation", "cluster", "deploy", "tests", "checks")
"""The parts, each of which may import the parts before it."""
APART: Final = "entry"
OF_EVERYTHING: Final = ("tests", "checks")
FOLDERS: Final = ("controller", "testing")
PRODUCT: Final = "hgfleet"


def problems(top: Path) -> list[str]:
    """Return a line for each import in the wrong direction, and for each circle."""
    files = {
        _module(path, top): path
        for folder in (*FOLDERS, PRODUCT)
        for path in sorted((top / folder).rglob("*.py"))
    }
    known = set(files)
    result = []
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        folder, _, inside = module.partition(".")
        if folder == PRODUCT:
            continue
        imported = list(imports(path.read_text("utf-8"), known))
        graph[module] = {name for _, name in imported} - {module}
        if folder == "controller" and inside:
            result += _of_part(path, inside.partition(".")[0], imported)
    result += [f"{top}: a circle of imports: {' -> '.join(way)}" for way in circles(graph)]
    return result


def _of_part(path: Path, part: str, imported: list[tuple[int, str]]) -> list[str]:
    if part not in (*ORDER, APART):
        return [f"{path}:1: the part {part} of controller/ has no place in the order of imports"]
    below = set(ORDER[: ORDER.index(part) + 1]) if part in ORDER else set()
    everything = {PRODUCT, "testing"} if part in OF_EVERYTHING else set()
    may = ", ".join(sorted(below | everything)) or "none of ours"
    result = []
    for line, name in imported:
        folder, _, inside = name.partition(".")
        allowed = inside.partition(".")[0] in below if folder == "controller" else False
        if inside and not allowed and folder not in everything:
            result.append(f"{path}:{line}: {part} imports {name}; it may import {may}")
    return result


def _module(path: Path, top: Path) -> str:
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

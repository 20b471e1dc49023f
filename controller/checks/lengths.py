"""Lengths of modules and functions, so that each is read in a few minutes, and of folders."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE: Final = 400
FUNCTION: Final = 60
"""Lines at most, docstring and comments included."""

ROOM: Final = 25
"""Modules at most in a folder of the product, so that its list shows where things are decided."""

PRODUCT: Final = ("hgfleet", "hgext", "controller")

FOLDERS: Final = ("hgfleet", "hgext", "docker", "ansible", "controller")


def problems(top: Path) -> list[str]:
    """Return a line for each module, each function and each folder that is too long."""
    return [*too_full(top), *_too_long(top)]


def too_full(top: Path) -> list[str]:
    """Return a line for each folder of the product with too many modules."""
    counts = Counter(path.parent for name in PRODUCT for path in (top / name).rglob("*.py"))
    return [
        f"{folder}: got {count} modules, expected at most {ROOM}; make rooms of it by subject"
        for folder, count in sorted(counts.items())
        if count > ROOM
    ]


def _too_long(top: Path) -> list[str]:
    return [
        f"{path}:{line}: {text}"
        for folder in FOLDERS
        for path in sorted((top / folder).rglob("*.py"))
        for line, text in too_long(path.read_text(encoding="utf-8"))
    ]


def too_long(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and description of each excess in a module."""
    if (lines := len(text.splitlines())) > MODULE:
        yield 1, f"got a module of {lines} lines, expected at most {MODULE}; split it by subject"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if (lines := node.end_lineno - node.lineno + 1) > FUNCTION:
                yield node.lineno, f"got {lines} lines in {node.name}, expected at most {FUNCTION}"

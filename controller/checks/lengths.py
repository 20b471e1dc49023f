"""Lengths of modules and functions, so that each is read in a few minutes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE: Final = 400
FUNCTION: Final = 60
"""Lines at most, docstring and comments included."""

FOLDERS: Final = ("hgfleet", "hgext", "docker", "ansible", "controller")


def problems(top: Path) -> list[str]:
    """Return a line for each module and each function that is too long."""
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

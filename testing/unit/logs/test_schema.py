"""Every field that a part logs about pushes, clones and requests is in the documented schema."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from controller.checks import log_fields
from hgfleet.logs import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP: Final = Path(__file__).resolve().parents[3]

OTHERS: Final = {"replication": ("source", "feed"), "web": ("pushlog",)}
"""Parts of the paths of modules that `hgfleet log` does not show: daemons with lines of their own,
and pages, whose fields are for clients."""

MODULES: Final = [
    *sorted((TOP / "hgext").glob("*.py")),
    TOP / "hgfleet/ssh/session/shell.py",
    TOP / "hgfleet/admission/clone.py",
    *(
        path
        for package, others in OTHERS.items()
        for path in sorted((TOP / "hgfleet" / package).rglob("*.py"))
        if not any(part in str(path.relative_to(TOP / "hgfleet" / package)) for part in others)
    ),
]
"""Modules whose lines `hgfleet log` shows."""

WRITERS: Final = {"line", "say", "_say"}
"""Functions that take the fields of a line as named arguments."""

RECORDS: Final = {"fields", "entry", "record"}
"""Names of dictionaries of fields."""

REQUEST_FORMATS: Final = (
    "ansible/roles/proxy/templates/haproxy.cfg.j2",
    "ansible/roles/web/templates/nginx.conf.j2",
)


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def logged(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each field that a module logs."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            is_log = ast.unparse(node.func) in ("clone.log", "self.log")
            if name_of(node.func) in WRITERS or is_log:
                yield from ((node.lineno, key.arg) for key in node.keywords if key.arg)
            if name_of(node.func) == "write" and node.args:
                yield from _keys(node.args[0])
            if name_of(node.func) == "update" and "entry" in ast.unparse(node.func):
                yield from ((node.lineno, key.arg) for key in node.keywords if key.arg)
        elif isinstance(node, ast.Subscript) and name_of(node.value) in RECORDS:
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                yield node.lineno, node.slice.value
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if name_of(target) in RECORDS:
                yield from _keys(node.value)


def _keys(node: ast.expr | None) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Dict):
        for key in node.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.lineno, key.value


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_logs_fields_of_the_schema(path: Path) -> None:
    fields = logged(path.read_text())
    unknown = [f"{line}: {name}" for line, name in fields if name not in schema.FIELDS]
    assert not unknown, "add them to hgfleet/logs/schema.py, or use the name that is there"


def test_the_names_are_found_in_code() -> None:
    fields = {
        name
        for _, name in logged(
            'fields: dict[str, object] = {"a": 1}\nfields["b"] = 2\nself._say("x", c=1, **fields)\n'
            'logfmt.line("x", d=1)\nclone.log("x", e=1)\nexchange.entry.update(f=1)\n'
            'math.log(x=1)\nrecord = {"g": 1}\nself._log.write({"h": 1, **entry})\n'
        )
    }
    assert fields == set("abcdefgh")


@pytest.mark.parametrize("template", REQUEST_FORMATS)
def test_the_proxy_and_nginx_log_fields_of_the_schema(template: str) -> None:
    text = (TOP / template).read_text()
    lines = [line for line in text.splitlines() if line.lstrip().startswith(("log-format", "'"))]
    names = re.findall(r'[{,]?"([a-z_0-9]+)":', "".join(lines))
    assert "id" in names
    assert set(names) <= set(schema.FIELDS)


def test_the_document_has_the_schema() -> None:
    document = log_fields.DOCUMENT.read_text()
    assert log_fields.put(document) == document, "python -m controller.checks.log_fields writes it"


def test_a_document_without_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected both marks"):
        log_fields.put(log_fields.BEGIN)

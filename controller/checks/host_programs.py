"""Programs that Ansible sends to hosts by `script:` import only Python's own modules.

`script:` copies a single file to a host, which has no package of ours before its first release, and
the package of another release during a roll. So the program can import neither hgfleet nor a file
from its own folder. Programs of playbooks lie in ON_HOST, programs of a role in its folder `files`.
Each program of ON_HOST is sent by a playbook, so no module there belongs to the controller.
"""

from __future__ import annotations

import ast
import os.path
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_HOST: Final = "ansible/on_host"
PLAYS: Final = ("ansible/*.yml", "ansible/playbooks/**/*.yml", "ansible/roles/*/tasks/**/*.yml")
SCRIPT: Final = ("ansible.builtin.script", "script")

_OTHERWISE: Final = re.compile(r"\{\{ *\w+ *\| *default\('([^']*)'\) *\}\}")
"""A variable for tests, with the path where it is not given."""


class _Loader(yaml.SafeLoader):
    """Tasks may carry Ansible's tags."""


_Loader.add_multi_constructor("!", lambda _loader, _suffix, _node: None)


def sent(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the program of each `script:` of a file of plays or tasks."""
    for document in yaml.compose_all(text, Loader=_Loader):
        yield from _sent(document)


def _sent(node: yaml.Node) -> Iterator[tuple[int, str]]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _sent(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value not in SCRIPT:
                yield from _sent(value)
                continue
            words = value
            if isinstance(value, yaml.MappingNode):
                words = {name.value: given for name, given in value.value}["cmd"]
            yield words.start_mark.line + 1, _OTHERWISE.sub(r"\1", str(words.value)).split()[0]


def imported(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each module that is not Python's own."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        else:
            continue
        yield from (
            (node.lineno, name)
            for name in names
            if name.partition(".")[0] not in sys.stdlib_module_names
        )


def problems(top: Path) -> list[str]:
    """Return a line for each import of a program, and for each program that is not there."""
    result = []
    programs = {}
    for path in sorted({path for pattern in PLAYS for path in top.glob(pattern)}):
        for line, name in sent(path.read_text("utf-8")):
            program = _program(path, name)
            if not program.is_file():
                result.append(f"{path}:{line}: the script {name} is no file: expected {program}")
            elif program.suffix == ".py":
                programs[program] = f"{path}:{line}"
    for program in sorted({*programs, *(top / ON_HOST).glob("*.py")}):
        result += [
            f"{program}:{line}: a program for hosts imports {name}; Ansible sends only this file,"
            " so it may import Python's own modules"
            for line, name in imported(program.read_text("utf-8"))
        ]
        if program not in programs:
            result.append(
                f"{program}:1: no playbook sends it to a host; a module of the controller belongs"
                " into controller/"
            )
    return result


def _program(file: Path, name: str) -> Path:
    """Return the file that Ansible sends for a task of a role, or of a play."""
    is_of_role = file.match("ansible/roles/*/tasks/*")
    folder = file.parent.parent / "files" if is_of_role else file.parent
    return Path(os.path.normpath(folder / name))

"""The files that a text names: a story, a script, a template, a playbook, a string of Python. Pure.

| text | names |
| --- | --- |
| any | paths from the top of the repository: `$TOP/hgext/access.py`; modules: `-m hgfleet.web` |
| story, script | files in its folder: `$TESTDIR/policies.sh` |
| hosts of an inventory | the other files of its folder |
| playbook, tasks | files by a path from its folder: `tasks/lock.yml`, `../deploy/look.py`; roles |
| a file of a role | files of the role by name: `src: nginx.conf.j2`; its variables |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.tests.choice.paths import Index

KINDS: Final = (".t", ".sh", ".j2", ".yml")
"""Files, besides Python, of which the text is read."""
ROLES: Final = "ansible/roles/"
INVENTORIES: Final = "ansible/inventories/"
VARIABLES: Final = re.compile(r"(?:defaults|vars)/.+\.yml")

_TOPS = "hgfleet|hgext|controller|testing|docker|ansible|docs"
_MODULE = re.compile(r"\b(?:hgfleet|hgext|controller|testing)(?:\.[A-Za-z_]\w*)+")
_FROM = re.compile(r"\bfrom +([a-z_]\w*(?:\.\w+)*) +import +\(?([\w, ]+)")
_PATH = re.compile(rf"\b(?:{_TOPS})/[\w./-]*\w")
_FROM_TOP = re.compile(rf"(?:(?<![\w/.\-])|(?<=TOP/)|(?<=ROOT/))(?:{_TOPS})/[\w./-]*\w")
_FILE = re.compile(r"(?<![\w.\-])(?:[\w-][\w.-]*/|\.\./)*[\w-]+(?:\.[\w-]+)+")
_ROLE = re.compile(r"(?:import_role|include_role):\s+name: (\w+)|^ *- role: (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*#(?!!).*$", re.MULTILINE)
_TESTDIR = re.compile(r"TESTDIR\}?/")


def needed_roles(text: str) -> set[str]:
    """Return the roles that a text of Ansible imports, includes or depends on."""
    return {name for names in _ROLE.findall(text) for name in names if name}


def named(text: str, modules: Mapping[str, str], index: Index) -> Iterator[str]:
    """Return the files that any text names, by module or by a path from the top."""
    for dotted in _MODULE.findall(text):
        yield from files_of(dotted, modules)
    for base, imported in _FROM.findall(text):
        for name in imported.split(","):
            yield from files_of(f"{base}.{name.partition(' as ')[0].strip()}", modules)
    yield from (path for path in _PATH.findall(text) if path in index.known)
    for path in _FROM_TOP.findall(text):
        yield from index.files(path)


def of_file(name: str, text: str, modules: Mapping[str, str], index: Index) -> Iterator[str]:
    """Return the files that a text other than Python names, also by a path from its own place."""
    text = _COMMENT.sub("", text)
    # Roles, playbooks and images use no test, though they may mention a test.
    is_tested = name.startswith(("ansible/", "docker/"))
    for file in named(text, modules, index):
        if not (is_tested and file.startswith(("testing/", "docs/"))):
            yield file
    folder = name.rpartition("/")[0]
    for token in set(_FILE.findall(_TESTDIR.sub(" ", text))):
        for place in (folder, *_folders_of_role(name)):
            if (path := _joined(place, token)) in index.known:
                yield path
    if name.startswith(("ansible/", "docker/", "testing/roles/", "testing/site/")):
        for role in needed_roles(text):
            yield from index.files(f"{ROLES}{role}")
    if name.startswith(INVENTORIES) and name.endswith("/hosts.yml"):
        yield from index.files(folder)
    if name.startswith(ROLES):
        role = "/".join(name.split("/")[:3])
        yield from (
            file for file in index.files(role) if VARIABLES.fullmatch(file.removeprefix(f"{role}/"))
        )


def _folders_of_role(name: str) -> list[str]:
    if not name.startswith(ROLES):
        return []
    role = "/".join(name.split("/")[:3])
    return [f"{role}/{folder}" for folder in ("files", "handlers", "tasks", "templates", "vars")]


def _joined(folder: str, path: str) -> str:
    parts = folder.split("/") if folder else []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def module_names(files: Iterable[str]) -> dict[str, str]:
    """Return the dotted name of every Python file: `hgfleet.web` is hgfleet/web/__init__.py."""
    return {
        file.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): file
        for file in files
        if file.endswith(".py")
    }


def files_of(dotted: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Return the file of a module and of the packages around it, which Python loads too."""
    parts = dotted.split(".")
    for count in range(1, len(parts) + 1):
        file = modules.get(".".join(parts[:count]))
        if file:
            yield file

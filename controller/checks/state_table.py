"""Table of states in docs/architecture.md, made from `hgfleet/backup/states.toml`.

    python -m controller.checks.state_table          write the table
    python -m controller.checks.state_table --check  write nothing; 1 if something is wrong

A part that adds state says how it is backed up: the check names each folder that a role gives a
unit, or that its variables and tasks name below /var/lib, /var/cache and /srv, and that no state
declares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup import states

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hgfleet.backup.states import State

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = "docs/architecture.md"
SOURCE: Final = "hgfleet/backup/states.toml"
COMMAND: Final = "python -m controller.checks.state_table"

HEAD: Final = """\
## State

Made by `python -m controller.checks.state_table` from `hgfleet/backup/states.toml`.
The last column is how the role `backup` backs it up.

| state | path | writer | lost if | rebuilt from | backup |
| --- | --- | --- | --- | --- | --- |
"""

SECTION: Final = re.compile(r"^## State\n.*?(?=^## )", re.MULTILINE | re.DOTALL)

DIRECTORY: Final = re.compile(r"^(State|Cache|Logs|Runtime)Directory=(.+)$", re.MULTILINE)
BASES: Final = {
    "State": "/var/lib",
    "Cache": "/var/cache",
    "Logs": "/var/log",
    "Runtime": "/run",
}
NAMED: Final = re.compile(r"(?<![\w.-])/(?:var/lib|var/cache|srv)/[a-z][\w/-]*(?:\.[a-z]+)?")

WORDS: Final = {
    "repositories": "with its recovery point",
    "files": "as files",
    "export": "its export",
    "controller": "that of the controller",
    "none": "none",
}

ANCESTORS: Final = frozenset({"/srv/hg", "/var/lib/hgfleet", "/var/cache/hgfleet"})
"""Folders that have only folders of states in them."""

FOREIGN: Final = frozenset({"/var/lib/nginx", "/var/lib/hgfleet-admin"})
"""Folders of Debian's packages and of administrators' homes, with no state of a service."""


def table(declared: Iterable[State]) -> str:
    """Return the section of the page."""
    lines = []
    for state in declared:
        backup = WORDS[state.backup] + (f": {state.reason}" if state.reason != "-" else "")
        lost = "" if state.lost == "-" else state.lost
        rebuilt = "" if state.rebuilt == "-" else state.rebuilt
        cells = (state.name, state.where, state.writer, lost, rebuilt, backup)
        lines.append("".join(f"| {cell} " if cell else "| " for cell in cells) + "|\n")
    return HEAD + "".join(lines) + "\n"


def folders(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield each folder of state that a role names, with the file that names it."""
    roles = top / "ansible/roles"
    for path in sorted(roles.glob("*/templates/**/*")):
        if path.is_file():
            for kind, names in DIRECTORY.findall(path.read_text("utf-8")):
                yield from ((path, f"{BASES[kind]}/{name}") for name in names.split())
    for part in ("defaults", "vars", "tasks", "templates"):
        for path in sorted(roles.glob(f"*/{part}/**/*")):
            if path.is_file():
                for place in NAMED.findall(path.read_text("utf-8")):
                    yield path, place.rstrip("/")


def problems(top: Path, declared: Sequence[State]) -> list[str]:
    """Return a line for each folder that no state declares, and for an old table."""
    known = {path for state in declared for path in state.paths}
    result = []
    for path, folder in folders(top):
        above = {folder, *(str(parent) for parent in Path(folder).parents)}
        if not above & (known | FOREIGN) and folder not in ANCESTORS:
            result.append(
                f"{path}: {folder} is state that {SOURCE} does not declare; add how it is backed "
                f"up, or why not, and run {COMMAND}"
            )
    if written(top, declared) != (top / PAGE).read_text("utf-8"):
        result.append(f"{PAGE}: the table of states is old; run {COMMAND}")
    return sorted(set(result))


def written(top: Path, declared: Sequence[State]) -> str:
    """Return the page with the current table."""
    text, count = SECTION.subn(lambda _: table(declared), (top / PAGE).read_text("utf-8"))
    if count != 1:
        raise SystemExit(f"{PAGE}: expected a single section '## State', got {count}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or check it; the exit code is 1 if something is wrong."""
    argv = sys.argv[1:] if arguments is None else list(arguments)
    declared = states.declared()
    if "--check" not in argv:
        (ROOT / PAGE).write_text(written(ROOT, declared), "utf-8")
    lines = problems(ROOT, declared)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

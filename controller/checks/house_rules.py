"""Rules of this repository that no linter knows.

    python -m controller.checks.house_rules [FOLDER]

Only the inventory decides: a role may not ask whether it runs in a container, under molecule, in
Vagrant or in a test. Differences between the local cluster and production are variables of the
inventory. Conditions in tasks and handlers are checked, and `{% if %}` in templates. Likewise
`ignore_errors` and linters switched off by a comment. The result of a task has a name with `__`: it
stays for the plays after it, whose preflight takes other names for variables of a role.

The packages of hgfleet import each other in a single direction (`imports.py`), the parts of
controller/ too, and no two modules of controller/ or testing/ import each other
(`controller_imports.py`). Modules and functions are short enough to be read in a few minutes
(`lengths.py`). Tests on the cluster that may run at the same time share nothing (`sharing.py`).
Programs that Ansible sends to hosts import nothing of ours (`host_programs.py`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from controller.checks import controller_imports, host_programs, imports, lengths, sharing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]

CONDITIONS = frozenset({"when", "changed_when", "failed_when", "until"})
KEYWORDS = CONDITIONS | {"ignore_errors", "register"}

PLACES = re.compile(
    r"docker|podman|container|molecule|vagrant|virtuali[sz]ation|ansible_connection"
    r"|in_cluster|local_?cluster|(?<![a-z])(?:is_|in_)?test(?:s|ing)?(?:_|\b)",
    re.IGNORECASE,
)
"""Terms that a condition may not contain. `is match`, `contest` and the like do not match."""

WAY_OUT = "a difference between cluster and production is a variable of the inventory"

SWITCHED_OFF = re.compile(r"#\s*noqa\b|#\s*yamllint\s+disable|skip_list|warn_list")

TEMPLATE_CONDITION = re.compile(r"{%-?\s*(?:el)?if\s+(.*?)-?%}|{{[^}]*\bif\b(.*?)}}", re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Tasks may carry Ansible's tags."""


def _anything(_loader: yaml.SafeLoader, _suffix: str, _node: yaml.Node) -> None:
    return None


_Loader.add_multi_constructor("!", _anything)


def conditions(node: yaml.Node) -> Iterator[tuple[str, int, str]]:
    """Every keyword of interest below a node: its name, its line and its text."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if name in KEYWORDS:
                for scalar in scalars(value):
                    yield name, scalar.start_mark.line + 1, str(scalar.value)
            else:
                yield from conditions(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from conditions(item)


def scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Every scalar at or below a node."""
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from scalars(item)


def tasks_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield the problems of a file of tasks, handlers or plays."""
    for document in yaml.compose_all(text, Loader=_Loader):
        for name, line, condition in conditions(document):
            if name == "ignore_errors":
                if condition.lower() not in ("false", "no"):
                    yield line, "ignore_errors hides errors; use failed_when"
            elif name == "register":
                if not condition.startswith("__"):
                    yield line, f"register: {condition} needs a name with __ in front"
            elif match := PLACES.search(condition):
                yield line, f"{name} asks about '{match.group()}'; {WAY_OUT}"
    for number, content in enumerate(text.splitlines(), 1):
        if match := SWITCHED_OFF.search(content):
            yield number, f"'{match.group()}' switches a linter off; do what it asks"


def template_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield the problems of a template."""
    for match in TEMPLATE_CONDITION.finditer(text):
        place = PLACES.search(match.group(1) or match.group(2) or "")
        if place:
            line = text.count("\n", 0, match.start()) + 1
            yield line, f"a condition asks about '{place.group()}'; {WAY_OUT}"
    for number, content in enumerate(text.splitlines(), 1):
        if content.startswith(("ConditionVirtualization=", "AssertVirtualization=")):
            yield number, "the unit would behave differently in a container"


def check(top: Path) -> list[str]:
    """Check a repository; returns a line per problem, and fails if there is nothing to check."""
    result = [*imports.problems(top), *lengths.problems(top), *sharing.problems(top)]
    result += [*controller_imports.problems(top), *host_programs.problems(top)]
    count = 0
    for folder in ("tasks", "handlers"):
        for path in sorted(top.glob(f"ansible/roles/*/{folder}/**/*.yml")):
            count += 1
            result += [f"{path}:{line}: {text}" for line, text in tasks_problems(path.read_text())]
    plays = [*top.glob("ansible/*.yml"), *top.glob("ansible/playbooks/**/*.yml")]
    for path in sorted(plays):
        result += [f"{path}:{line}: {text}" for line, text in tasks_problems(path.read_text())]
    for path in sorted(top.glob("ansible/roles/*/templates/**/*")):
        if path.is_file():
            text = path.read_text()
            result += [f"{path}:{line}: {text}" for line, text in template_problems(text)]
    if not count:
        result.append(f"{top}/ansible/roles: no tasks found, so nothing was checked")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every problem; the exit code is 1 if there is any."""
    argv = sys.argv[1:] if arguments is None else list(arguments)
    if any(argument.startswith("-") for argument in argv):
        print(__doc__)
        return 0
    lines = check(Path(argv[0]) if argv else ROOT)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

"""The tier `lint`: style, types, and the rules of this repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.bootstrap import ROOT
from controller.tests import worktree
from controller.tests.commands import python, tool
from controller.tests.execution import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def is_shell(path: Path) -> bool:
    """Whether a file is a shell script, by its name or first line. Templates are not: not yet."""
    if path.suffix == ".j2":
        return False
    if path.suffix in (".sh", ".bash"):
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(100)
    except OSError:
        return False
    words = first.removeprefix(b"#!").split() if first.startswith(b"#!") else []
    return any(word.rpartition(b"/")[2] in (b"sh", b"bash", b"dash") for word in words)


def steps(_words: str, only: Sequence[str] | None = None) -> list[Step]:
    """Return a step per linter; with `only` just the linters that these files need."""
    # A change may also be that a file is gone.
    names = worktree.files() if only is None else [n for n in only if (ROOT / n).is_file()]
    scripts = [name for name in names if is_shell(ROOT / name)]
    yaml = [name for name in names if name.endswith((".yml", ".yaml"))]
    modules = [name for name in names if name.endswith(".py")]
    # ansible-lint needs all of it, to find the files that a play includes.
    plays = [name for name in names if name.startswith((*ANSIBLE, ".ansible-lint"))]
    whole = only is None
    return [
        *_if(plays, "ansible-lint", tool("ansible-lint", "--nocolor", "--profile", "production")),
        *_if(modules, "mypy", _mypy(), env={"MYPYPATH": "ansible"}),
        *_if(
            modules, "ruff check", tool("ruff", "check", "--no-fix", *(["."] if whole else modules))
        ),
        *_if(
            modules,
            "ruff format",
            tool("ruff", "format", "--check", *(["."] if whole else modules)),
        ),
        *_if(yaml, "yamllint", tool("yamllint", "-s", *(["."] if whole else yaml))),
        *_if(scripts, "shellcheck", tool("shellcheck", *scripts)),
        Step("lint", "role readmes", python("-m", "controller.checks.role_readme", "--check")),
        Step("lint", "table of ports", python("-m", "controller.checks.ports_table", "--check")),
        Step("lint", "table of states", python("-m", "controller.checks.state_table", "--check")),
        Step("lint", "alerts", python("-m", "controller.checks.alerts")),
        Step("lint", "house rules", python("-m", "controller.checks.house_rules")),
        Step("lint", "prose", python("-m", "controller.checks.prose")),
        Step("lint", "docs", python("-m", "controller.checks.docs")),
        Step("lint", "locks", python("-m", "controller.checks.locks")),
    ]


ANSIBLE: Final = ("ansible/", "docker/containers.yml", "testing/roles/playbooks/")


def _if(names: Sequence[str], name: str, command: list[str], **options: object) -> list[Step]:
    return [Step("lint", name, command, **options)] if names else []  # type: ignore[arg-type]


def _mypy() -> list[str]:
    """Return the single run over all typed files: a second run would read them again.

    The cache is relative, so that two checkouts do not share it.
    """
    typed = ["hgfleet", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "hgext").glob("*.py"))]
    tests = ("deploys", "e2e", "effective", "faults", "rolls", "site", "support")
    typed += [f"testing/{name}" for name in tests]
    typed += ["controller", "ansible/on_host"]
    return tool("mypy", "--strict", "--cache-dir", ".cache/mypy", *typed)

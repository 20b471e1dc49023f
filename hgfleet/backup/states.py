"""States of a site, and how each is backed up; only `states.toml` declares them.

The table in docs/architecture.md is generated from this file (`controller/checks/state_table.py`),
and a run backs up the paths of the states that the parts of its host have.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

from hgfleet.core.settings_file import parse_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from hgfleet.core.settings_file import Table

FILE: Final = "states.toml"
KINDS: Final = ("repositories", "files", "export", "controller", "none")
"""Repositories with their recovery points; plain files; the output of a command that runs first;
files of the controller, which its operator backs up; nothing."""


@dataclass(frozen=True, slots=True)
class State:
    """A row of the table; `where` is the place in words, `paths` are the paths on a host."""

    name: str
    where: str
    writer: str
    lost: str
    rebuilt: str
    backup: str
    reason: str
    """Why a state has no backup, or how its backup is made."""
    parts: frozenset[str]
    paths: tuple[str, ...]
    exported: tuple[str, ...]
    """Folders that the command of an export writes to, which are backed up in place of `paths`."""
    owner: str
    """User that restored files are given to."""
    group: str
    """Group of restored files; "-" for the owner's group."""


def declared() -> tuple[State, ...]:
    """Read the states that this release declares. Raises ConfigurationError."""
    text = resources.files("hgfleet.backup").joinpath(FILE).read_text("utf-8")
    return parse_table(FILE, tomllib.loads(text), parse)


def parse(table: Table) -> tuple[State, ...]:
    """Take the states out of their file; each says how it is backed up, or why not."""
    return tuple(map(_state, table.tables("state", least=1)))


def _state(table: Table) -> State:
    state = State(
        name=table.text("name"),
        where=table.text("where"),
        writer=table.text("writer"),
        lost=table.text("lost", "-"),
        rebuilt=table.text("rebuilt"),
        backup=table.text("backup", expected=f"one of {', '.join(KINDS)}"),
        reason=table.text("reason", "-"),
        parts=frozenset(table.texts("parts", ())),
        paths=tuple(table.texts("paths", ())),
        exported=tuple(table.texts("exported", ())),
        owner=table.text("owner", "root"),
        group=table.text("group", "-"),
    )
    if state.backup not in KINDS:
        raise table.error("backup", state.backup, f"one of {', '.join(KINDS)}")
    if state.backup == "none" and state.reason == "-":
        raise table.error("reason", None, f"why the state {state.name} needs no backup")
    if state.backup == "export" and not state.exported:
        raise table.error("exported", None, f"the folder that the export of {state.name} is in")
    return state


def paths(states: Iterable[State], parts: Collection[str]) -> list[str]:
    """Return the plain files and folders that a host with these parts backs up."""
    return sorted(
        path
        for state in states
        if state.backup in ("files", "export") and not state.parts.isdisjoint(parts)
        for path in (state.exported if state.backup == "export" else state.paths)
    )


def has_repositories(states: Iterable[State], parts: Collection[str]) -> bool:
    """Whether a host with these parts backs up repositories."""
    return any(
        state.backup == "repositories" and not state.parts.isdisjoint(parts) for state in states
    )

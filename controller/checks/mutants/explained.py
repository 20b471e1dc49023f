"""Survivors that stay, each with a reason: explained.toml in this folder.

[[explained]]
file = "hgfleet/backup/restic/prune.py"
scope = "_wait"                       # a function or class; without it: the whole file
change = "now + pause > deadline -> now + pause >= deadline"    # without it: every change
reason = "equal times of a monotonic clock do not occur"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.checks.mutants.mutations import mutations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.checks.mutants.choosing import Mutant

FILE: Final = Path(__file__).with_name("explained.toml")
SHORTEST_REASON: Final = 20
"""Characters; just "equivalent" explains nothing."""


@dataclass(frozen=True)
class Entry:
    """The reason for the survivors of a file, of a function or of a change."""

    file: str
    reason: str
    scope: str = ""
    change: str = ""

    def covers(self, file: str, scope: str, change: str) -> bool:
        """Whether a mutation is explained by this entry."""
        return (
            self.file == file
            and (not self.scope or f"{scope}.".startswith(f"{self.scope}."))
            and self.change in ("", change)
        )


def read(text: str) -> list[Entry]:
    """Read the list; raise TypeError for a field that an entry does not have."""
    return [Entry(**entry) for entry in tomllib.loads(text).get("explained", [])]


def reason(entries: Sequence[Entry], mutant: Mutant) -> str:
    """Return why a mutant may survive, empty if no entry says so."""
    mutation = mutant.mutation
    matching = (
        entry for entry in entries if entry.covers(mutant.file, mutation.scope, mutation.change)
    )
    return next((entry.reason for entry in matching), "")


def problems(entries: Sequence[Entry], sources: Mapping[str, str]) -> list[str]:
    """Return the problems of the list: an entry that explains nothing, or gives no reason."""
    lines = []
    for entry in entries:
        named = " ".join(word for word in (entry.file, entry.scope, entry.change) if word)
        if len(entry.reason) < SHORTEST_REASON:
            lines.append(f"{named}: got the reason {entry.reason!r}; expected a sentence")
        known = mutations(sources.get(entry.file, ""))
        if not any(entry.covers(entry.file, mutation.scope, mutation.change) for mutation in known):
            lines.append(f"{named}: there is no such mutation; remove the entry or correct it")
    return lines

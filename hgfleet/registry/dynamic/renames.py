"""Former paths of user repositories: notes that lead a reader from an old path to the new path.

The dynamic registry has them next to its repositories, by the old path:

    "renamed": {"people/bob/x": {"to": "people/bob/y", "owner": "bob", "since": "2026-11-21T...",
      "owner_id": "b862b310-7ccc-103d-..."}}

The old path is free for its former owner, but not for others: the addresses in clones would lead to
their repository. Others include later people of the owner's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hgfleet.core import names

MOST: Final = 20
"""Notes of an owner; the oldest goes. They reserve names, and each session reads them."""


@dataclass(frozen=True, slots=True)
class Rename:
    """The new path of a repository, and the person who renamed it."""

    to: str
    owner: str
    since: str
    owner_id: str = ""
    """Person id of the owner; empty where the repository's entry had none."""

    @property
    def created(self) -> str:
        """When its owner made it."""
        return self.since

    def to_json(self) -> dict[str, str]:
        """Return the note as the file has it."""
        own = {"owner_id": self.owner_id} if self.owner_id else {}
        return {"to": self.to, "owner": self.owner, "since": self.since, **own}


def rename_of(path: str, value: Any) -> Rename | None:
    """Return the note from the file, or None if it is malformed."""
    if not isinstance(value, Mapping) or names.path_problem(path):
        return None
    to, owner, since = value.get("to"), value.get("owner"), value.get("since")
    if not (isinstance(to, str) and isinstance(owner, str) and isinstance(since, str)):
        return None
    if names.path_problem(to) or not names.is_person(owner):
        return None
    owner_id = value.get("owner_id", "")
    if owner_id and not names.is_person_id(owner_id):
        return None
    return Rename(to, owner, since, owner_id)


def with_rename(notes: Mapping[str, Any], old: str, rename: Rename) -> dict[str, Any]:
    """Add a note: earlier notes lead to the new path, too, and no note leads away from it."""
    kept = {}
    for path, value in notes.items():
        note = rename_of(path, value)
        if path in (old, rename.to) or note is None:
            continue
        kept[path] = {**value, "to": rename.to} if note.to == old else value
    kept[old] = rename.to_json()
    owner = rename.owner, rename.owner_id
    mine = sorted(
        (path for path, value in kept.items() if _owner(value) == owner),
        key=lambda path: (kept[path]["since"], path == old),
    )
    for path in mine[:-MOST]:
        del kept[path]
    return kept


def _owner(value: Mapping[str, Any]) -> tuple[str, str]:
    return value["owner"], value.get("owner_id", "")


def without(notes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Remove the notes that lead to a path, which has no repository any more."""
    return {
        old: value
        for old, value in notes.items()
        if not (isinstance(value, Mapping) and value.get("to") == path)
    }


def sentence(old: str, new: str) -> str:
    """Return the answer at an old path, for a person who may read the repository."""
    return (
        f"{old} is now {new}: ssh://hg@HOST/{new}. In a clone, put that into the section [paths] "
        "of .hg/hgrc."
    )

"""Repositories that left the registry without a deletion, recorded with their entries.

A primary records them if a program other than a writer of this release has changed its registry, a
mirror when it accepts the primary's registry. So an entry that was lost comes back with its owner
and its readers (`hgfleet registry bring-back`). A note goes when the repository is back, or
deleted.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files
from hgfleet.core.errors import RegistryError
from hgfleet.core.identity import is_identity
from hgfleet.core.names import path_problem
from hgfleet.registry.dynamic import user_repositories

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hgfleet.registry.dynamic.user_repositories import Dynamic

NAME: Final = ".registry-missing.json"
"""Name of the file, in the folder of the dynamic registry."""

MOST: Final = 20_000
"""Notes; the oldest go first."""

MODE: Final = 0o640


@dataclass(frozen=True, slots=True)
class Missing:
    """A repository that the registry named last at `path`; without an entry, the inventory's."""

    identity: str
    path: str
    since: str
    entry: Mapping[str, Any] | None = None


Notes = dict[str, Missing]
"""By identity."""


def updated(noted: Mapping[str, Missing], before: Dynamic, after: Dynamic, now: str) -> Notes:
    """Return the notes after a registry was replaced by another registry."""
    present = {*_named(after), *after.purged}
    kept = {identity: note for identity, note in noted.items() if identity not in present}
    for identity, (path, entry) in _named(before).items():
        if identity not in present:
            kept.setdefault(identity, Missing(identity, path, now, entry))
    newest = sorted(kept.values(), key=lambda note: (note.since, note.path))[-MOST:]
    return {note.identity: note for note in newest}


def _named(registry: Dynamic) -> dict[str, tuple[str, Mapping[str, Any] | None]]:
    """Return path and entry of all repositories that a registry names, by identity."""
    named: dict[str, tuple[str, Mapping[str, Any] | None]] = {
        identity: (path, None) for path, identity in registry.identities.items()
    }
    for path, entry in registry.raw.items():
        identity = entry.get("identity") if isinstance(entry, dict) else None
        if isinstance(identity, str) and is_identity(identity):
            named[identity] = path, entry
    return named


def recovered(before: Dynamic, after: Dynamic) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return identities and deletions of a registry that another program wrote after `before`.

    An older release drops both when it writes the file, so their absence means nothing.
    """
    present = {identity for identity, (_, entry) in _named(after).items() if entry is not None}
    # An operator who brings a repository back gives it its entry.
    purged = {identity: when for identity, when in before.purged.items() if identity not in present}
    identities = {
        path: identity for path, identity in before.identities.items() if identity not in present
    }
    return {**identities, **after.identities}, {**purged, **after.purged}


def parse(content: bytes, name: str) -> Notes:
    """Read notes; raises RegistryError."""
    try:
        notes = [Missing(**values) for values in json.loads(content)["missing"]]
        wrong = [note for note in notes if not _is_right(note)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RegistryError(
            f"{name}: not notes of missing repositories ({error!r:.200})"
        ) from error
    if wrong:
        raise RegistryError(f"{name}: not a note of a missing repository: {wrong[0]!r:.200}")
    return {note.identity: note for note in notes}


def _is_right(note: Missing) -> bool:
    entry: object = note.entry
    return (
        is_identity(note.identity)
        and isinstance(note.path, str)
        and not path_problem(note.path)
        and isinstance(note.since, str)
        and (entry is None or isinstance(entry, dict))
    )


def text(notes: Iterable[Missing]) -> str:
    """Return the content of the file."""
    return json.dumps({"missing": [asdict(note) for note in notes]}, indent=1) + "\n"


def load(dynamic: Path | str) -> Notes:
    """Read the notes of a dynamic registry; raises RegistryError."""
    file = f"{os.fspath(dynamic).rpartition('/')[0]}/{NAME}"
    content = user_repositories.read_content(file)
    return parse(content, file) if content else {}


def load_or_none(dynamic: Path | str) -> Notes:
    """Read the notes of a dynamic registry; damaged notes count as none."""
    try:
        return load(dynamic)
    except RegistryError:
        return {}


def note(dynamic: Path | str, folder: int, before: Dynamic, after: Dynamic) -> None:
    """Note what left a registry, whose `folder` the caller has locked, before it is replaced (I/O).

    Damaged notes are replaced.
    """
    noted = load_or_none(dynamic)
    notes = updated(noted, before, after, user_repositories.now())
    if notes != noted:
        files.replace_at(folder, NAME, text(notes.values()), mode=MODE)


def has_notes(folder: int) -> bool:
    """Whether there are notes in the folder of a registry, which a descriptor has open."""
    try:
        os.stat(NAME, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True

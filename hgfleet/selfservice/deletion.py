"""Deletion of archived repositories for good, by operators and by owners.

A repository is moved away first, then removed from the registry, then deleted. Killed in between,
the deletion leaves an archived entry without a repository, which the same command removes, or a
folder in `.purged`, which the next deletion empties.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import identity, names
from hgfleet.core.errors import AccessDeniedError, HostError, UsageError
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.selfservice import renaming, repositories

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.selfservice.context import Context

PURGE_AFTER_DAYS: Final = 30
"""Days for which operators keep an archived repository at least."""

PURGED: Final = ".purged"
"""Folder below the root for repositories during deletion; no path begins with a dot."""


def delete_own(context: Context, path: str, again: str) -> None:
    """Delete an archived repository of the person, who has named it twice.

    Raises UsageError and AccessDeniedError; a repository of another person gets the same answer as
    a missing repository.
    """
    path, again = repositories.plain(path), repositories.plain(again)
    if path != again:
        raise UsageError(
            "A deletion is for good, so name it twice: "
            f'"repo delete PATH PATH", got {path!a} and {again!a}.'
        )

    def check(entry: Entry | None) -> None:
        if entry is None or not context.principal.owns(entry):
            raise repositories.missing(context, path)
        if entry.archived is None:
            raise AccessDeniedError(
                f'{path} is in service; "repo archive {path}" takes it out of service first.'
            )

    _, away = withdraw(context, path, check)
    shutil.rmtree(away, ignore_errors=True)
    clear(context)
    repositories.notify_bundle_jobs(context, path)


def withdraw(
    context: Context, path: str, check: Callable[[Entry | None], None]
) -> tuple[Entry, Path]:
    """Take a repository off its place and out of the registry; return its entry and its folder.

    `check` gets the entry under the lock and raises an error unless it may go.
    """
    renaming.finish(context, path)
    away = Path(context.root) / PURGED / uuid.uuid4().hex
    place = context.place(path)
    with dynamic_update.update(context.dynamic) as entries:
        entry = entries.get(path)
        check(entry)
        assert entry is not None
        if path in load_compiled(context.registry).repositories:
            raise HostError(f"{path}: registry.yml declares it now, and the declared one is served")
        # Mirrors and backups delete it too; only the recorded purge tells them that it is not lost.
        if gone := entry.identity or identity.of(place):
            entries.note_purged(gone)
        if place.is_dir():
            away.parent.mkdir(mode=0o700, exist_ok=True)
            place.rename(away)
        del entries[path]
    for above in names.parents(path)[:-1]:
        # Only empty folders: rmdir removes no others.
        try:
            context.place(above).rmdir()
        except OSError:
            break
    return entry, away


def clear(context: Context) -> None:
    """Delete the remains of interrupted deletions."""
    purged = Path(context.root) / PURGED
    if purged.is_dir():
        for remains in purged.iterdir():
            shutil.rmtree(remains, ignore_errors=True)

"""Renaming of repositories by their owner.

The process may be killed after any step:

=========================  =====================================================================
killed                     remains
=========================  =====================================================================
before it is registered    the repository as it was
before it is moved         registered at the new path, on disk at the old path: the next session
                           at the new path, `repo rename` or `registry apply` moves it
after it was moved         complete; the entry names the old path, which is not used any more
=========================  =====================================================================

Pushes end first: the rename takes the lock of the repository. A push that waited for that lock
finds another folder at its path, or none, and is refused (`hgext/access.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core.errors import AccessDeniedError
from hgfleet.core.files import sync
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.registry.provision import moves
from hgfleet.selfservice import creation, repositories, rules

if TYPE_CHECKING:
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry
    from hgfleet.selfservice.context import Context

LOCK_WAIT_S = moves.LOCK_WAIT_S


def rename(context: Context, old: str, new: str) -> str:
    """Rename a repository that the person owns; return its new path.

    Raises AccessDeniedError, UsageError and TemporaryError; the repository is then as it was.
    """
    old = repositories.plain(old)
    finish(context, old)
    with repositories.mine(context, old) as (entries, _):
        check(context, old, new, context.static, entries.dynamic)
    place = context.place(old)
    with moves.at_rest(place, old, LOCK_WAIT_S):
        with repositories.mine(context, old) as (entries, entry):
            static = load_compiled(context.registry)
            check(context, old, new, static, entries.dynamic)
            creation.clear(context.place(new), new)
            entries[new] = replace(entry, moved_from=old)
            # Before the deletion, which removes the notes that still lead to the old path.
            note = Rename(new, entry.owner, user_repositories.now(), entry.owner_id)
            entries.note_rename(old, note)
            del entries[old]
        _move(context, new)
    for path in (old, new):
        repositories.notify_bundle_jobs(context, path)
    return new


def check(context: Context, old: str, new: str, static: Registry, entries: Dynamic) -> None:
    """Refuse a new path that is taken, or that is not for this person."""
    others = user_repositories.dynamic_of(
        {path: value for path, value in entries.raw.items() if path != old or path == new},
        entries.renamed_raw,
    )
    namespace = rules.check_creation(new, context.principal, static, others, context.url)
    if rules.governing(old, static) != namespace:
        # The namespace sets the readers and the rules, and these must not change unnoticed.
        here = rules.governing(old, static)
        raise AccessDeniedError(
            f"{old} stays below {here.path if here else 'its folder'}, whose settings it has; "
            'for another place, "repo fork" copies it.'
        )
    if new.startswith(f"{old}/") or old.startswith(f"{new}/"):
        raise rules.not_available(new)
    creation.refuse_inside_a_repository(context, new)


def finish(context: Context, path: str) -> None:
    """Finish the rename of a repository to this path, if a rename was interrupted."""
    entries = user_repositories.load(context.dynamic)
    entry = entries.repositories.get(path)
    if not moves.is_unfinished(Path(context.root), path, entry, context.static, entries.raw):
        return
    assert entry is not None
    assert entry.moved_from is not None
    with moves.at_rest(context.place(entry.moved_from), path, LOCK_WAIT_S):
        _move(context, path)


def _move(context: Context, path: str) -> None:
    """Move the folder of an entry to its path; its repository is locked."""
    with dynamic_update.update(context.dynamic) as entries:
        static = load_compiled(context.registry)
        entry = entries.get(path)
        root = Path(context.root)
        if moves.is_unfinished(root, path, entry, static, entries.dynamic.raw):
            assert entry is not None
            assert entry.moved_from is not None
            source, place = context.place(entry.moved_from), context.place(path)
            repositories.configure_at(
                context, user_repositories.effective(path, entry, static), source
            )
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
            sync(place.parent)
            sync(source.parent)
        forget(entries, path)


def forget(entries: dynamic_update.Update, path: str) -> None:
    """Take the old path out of an entry that is at its place."""
    entry = entries.get(path)
    if entry is not None and entry.moved_from is not None:
        entries[path] = replace(entry, moved_from=None)

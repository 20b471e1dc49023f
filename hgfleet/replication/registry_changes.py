"""Changes of the registry of user repositories, as moves and removals on a mirror's disk. Pure.

A repository is known by its owner and the time of its creation, so that one that was renamed, and
one that was created at a former path of another, are told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.registry.entry import Entry
    from hgfleet.registry.model import Registry
    from hgfleet.registry.user_repositories import Dynamic

    Key = tuple[str, str]

FEW: int = 10
"""Removals that are always believed; more of them only while most repositories stay."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Steps of a mirror: moves (old path, new path), then removals, then `configure`.

    `kept` are repositories that left the registry, with so many others that they stay on the disk,
    where nothing serves them.
    """

    moves: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    configure: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def changes(before: Dynamic, after: Dynamic, static: Registry) -> Changes:
    """Compare the registry that the mirror followed last with the one that it follows now.

    Repositories of the inventory are not those of this registry: `registry apply` looks after them.
    """
    old, new = _keys(before, static), _keys(after, static)
    gone = {path for path, key in old.items() if new.get(path) != key}
    come = {path for path, key in new.items() if old.get(path) != key}
    moves: dict[str, str] = {}
    for path in sorted(come):
        source = _former(path, gone - set(moves.values()), old, new, after)
        if source is not None:
            moves[path] = source
    left = sorted(gone - set(moves.values()))
    many = len(left) > FEW and 2 * len(left) > len(old)
    changed = [
        path
        for path in sorted(after.raw)
        if path not in static.repositories
        and (path in come or before.raw.get(path) != after.raw[path])
    ]
    return Changes(
        tuple((source, path) for path, source in moves.items()),
        () if many else tuple(left),
        tuple(changed),
        tuple(left) if many else (),
    )


def _keys(dynamic: Dynamic, static: Registry) -> dict[str, Key]:
    """Return the key of each entry; a wrong entry has none, and stays as it is."""
    return {
        path: (entry.owner, entry.created)
        for path, entry in dynamic.repositories.items()
        if path not in static.repositories
    }


def _former(
    path: str,
    gone: set[str],
    old: Mapping[str, Key],
    new: Mapping[str, Key],
    after: Dynamic,
) -> str | None:
    """Return the path that a repository had before, None for a new one."""
    same = {one for one in gone if old[one] == new[path]}
    entry: Entry | None = after.repositories.get(path)
    if entry is not None and entry.moved_from in same:
        return entry.moved_from
    noted = {one for one in same if (note := after.renamed.get(one)) and note.to == path}
    for found in (noted, same):
        if len(found) == 1:
            return found.pop()
    return None

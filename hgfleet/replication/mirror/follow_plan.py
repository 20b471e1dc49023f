"""Plan for the folders of a mirror by its registry: which move, go, or are set aside. Pure.

A folder is recognized by the identity of its repository, so nothing has to be remembered between
runs: after a killed run, the next run reads the disk and finishes the work.

A primary of the previous release names no identities. There a folder is recognized by the time of
creation of the registry entry that it followed, which is in a file of the folder (`places.mark`).
Entries of the same second cannot be told apart: their folders stay where they are, and leave for
good when any of these entries goes or comes. (If two of them exchange their paths, this is not
noticed.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hgfleet.core.names import parents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

AWAY: Final = ".replication"
"""Folder below the root for repositories that move or go; no path begins with a dot."""

ASIDE: Final = "aside-"
"""Prefix in AWAY, before the identity of a repository that the registry does not name."""

GONE: Final = "gone-"
"""Prefix in AWAY, before the identity of a deleted repository, until its folder is removed."""

SHARED: Final = " shared"
"""Suffix of the time that a folder followed, if other entries were created in the same second: then
the folder follows only an entry with an identity."""

_KEPT: Final = ("old-", "new-", "bundle-")
"""Prefixes in AWAY of folders that a resync makes and removes."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a repository; `place` is relative to the root."""

    place: str
    identity: str = ""
    """The identity in its store, else in its push log."""
    is_empty: bool = False
    """It has neither changesets nor records, so it belongs to no repository."""
    is_logged: bool = False
    """Only its push log has the identity: an earlier release created it."""
    created: str = ""
    """Time of creation of the earlier release's entry that it followed; "" if it followed none."""

    @property
    def away(self) -> str:
        """Its name in AWAY; "" if it is elsewhere."""
        above, _, name = self.place.rpartition("/")
        return name if above == AWAY else ""

    @property
    def key(self) -> str:
        """Its name in AWAY on the way to another path."""
        return self.identity or f"entry-{self.created}"


@dataclass(slots=True)
class Plan:
    """Steps in their order; folders leave their places first, so paths can be exchanged."""

    delete: list[Folder] = field(default_factory=list)
    take_away: list[Folder] = field(default_factory=list)
    """Folders to move into AWAY, under the key."""
    set_aside: list[tuple[Folder, str]] = field(default_factory=list)
    """Folders with their names in AWAY."""
    give: list[tuple[str, str]] = field(default_factory=list)
    """Place and new identity of repositories without an identity in the store, before any move."""
    put: list[tuple[Folder, str]] = field(default_factory=list)
    """Folders that come to these paths, from AWAY."""


def is_kept(name: str) -> bool:
    """Whether no plan touches this name in AWAY."""
    return name.startswith(_KEPT)


def plan(
    folders: Iterable[Folder],
    wanted: Mapping[str, str],
    purged: Collection[str],
    nameless: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Compare the folders with the registry.

    `wanted` has the identity of each entry by its path, including archived entries. It is "" for an
    entry of an earlier release; `nameless` has the time of its creation. A folder that has followed
    no such entry stays at the path of the entry.

    The first of these that applies decides about a folder. A folder that an entry names, by
    identity or by time, goes to the path of the entry; of several copies, the copy at the path is
    preferred. A folder of a deleted repository is deleted. A folder that was set aside before
    stays, and so does an unknown folder that is in the way of no entry. An empty folder at the path
    of an entry whose repository is in no folder becomes this repository. Every other folder is set
    aside.
    """
    ordered = sorted(folders, key=lambda folder: folder.place)
    targets: dict[str, str] = {}
    for path, identity in sorted(wanted.items()):
        if identity:
            targets.setdefault(identity, path)
    chosen = _chosen(ordered, targets)
    by_time = _by_time(ordered, chosen, nameless)
    above = {parent for path in wanted for parent in parents(path)}
    names = {folder.away for folder in ordered}
    made = Plan()
    for folder in ordered:
        target = by_time.get(folder.place)
        if folder.identity in targets and chosen[folder.identity] == folder:
            target = targets[folder.identity]
            if folder.is_logged:
                made.give.append((folder.place, folder.identity))
        if target is not None:
            if folder.place != target:
                made.put.append((folder, target))
                if not folder.away:
                    made.take_away.append(folder)
        elif _is_deleted(folder, targets, purged):
            made.delete.append(folder)
        elif _may_stay(folder, wanted, above, nameless):
            continue
        elif folder.is_empty and not folder.identity and _is_free(folder, wanted, chosen):
            made.give.append((folder.place, wanted[folder.place]))
        else:
            name = _name(folder, names)
            names.add(name)
            made.set_aside.append((folder, name))
    return made


def _chosen(folders: Iterable[Folder], targets: Mapping[str, str]) -> dict[str, Folder]:
    """Return the folder of each wanted repository; of copies, the folder that is in its place."""
    chosen: dict[str, Folder] = {}
    for folder in folders:
        path = targets.get(folder.identity)
        if path is not None and (folder.identity not in chosen or folder.place == path):
            chosen[folder.identity] = folder
    return chosen


def leaving(before: Mapping[str, str], coming: Mapping[str, str]) -> dict[str, str]:
    """Return the paths whose folders leave before a registry comes, with the times they followed.

    `before` has the times that the folders followed, `coming` the times of the entries without
    identity, both by path.
    """
    then, later = Counter(before.values()), Counter(coming.values())
    changed = {
        created
        for path in {*before, *coming}
        if before.get(path) != coming.get(path)
        for created in (before.get(path), coming.get(path))
    }
    shared = {time for time in later if time in changed and max(then[time], later[time]) > 1}
    left = {}
    for path, created in before.items():
        if created in shared:
            left[path] = f"{created}{SHARED}"
        elif coming.get(path, created) != created:
            left[path] = created
    return left


def _by_time(
    folders: Iterable[Folder], chosen: Mapping[str, Folder], nameless: Mapping[str, str]
) -> dict[str, str]:
    """Return the path of each folder that follows an entry without identity, by its place."""
    named = {folder.place for folder in chosen.values()}
    times = Counter(nameless.values())
    targets = {created: path for path, created in nameless.items() if times[created] == 1}
    places: dict[str, str] = {}
    for folder in folders:
        path = targets.get(folder.created)
        if path is None or folder.place in named:
            continue
        if path not in places or folder.place == path:
            places[path] = folder.place
    return {place: path for path, place in places.items()}


def _is_deleted(folder: Folder, targets: Collection[str], purged: Collection[str]) -> bool:
    if not folder.identity:
        # A killed run was deleting this folder.
        return folder.away.startswith(GONE)
    return folder.identity in purged and folder.identity not in targets


def _may_stay(
    folder: Folder, wanted: Mapping[str, str], above: Collection[str], nameless: Mapping[str, str]
) -> bool:
    """Whether a folder that no entry names is unknown, and in the way of no entry."""
    if folder.away:
        return folder.away.startswith(ASIDE) or not folder.identity
    if folder.place in wanted:
        is_another = folder.created not in ("", nameless.get(folder.place, ""))
        return not wanted[folder.place] and not is_another
    is_in_the_way = folder.place in above or any(path in wanted for path in parents(folder.place))
    return not folder.identity and not is_in_the_way


def _is_free(folder: Folder, wanted: Mapping[str, str], chosen: Mapping[str, Folder]) -> bool:
    """Whether no folder has the identity that an entry names at this place."""
    identity = wanted.get(folder.place, "")
    return bool(identity) and identity not in chosen


def _name(folder: Folder, names: Collection[str]) -> str:
    name = f"{ASIDE}{folder.identity or 'unknown'}"
    tries = [name, *(f"{name}-{number}" for number in range(2, len(names) + 3))]
    return next(free for free in tries if free not in names)

"""Folders of a mirror after its registry: which move, go, come, or are set aside. Pure.

A folder is known by the identity of its repository, so nothing has to be remembered from one run to
the next: a run that was killed at any point is finished by the next one, which looks at the disk.

A primary of the release before names no identities. There a folder is known by the time at which
the registry entry was created that it has followed: it is in a file of the folder (`places.mark`).
Entries of the same second are not told apart: their folders stay where they are, and leave for good
when one of these entries goes or comes. (Two of them that exchange their paths are not noticed.)
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
"""Folder below the root of repositories for those that move or go; no path begins with a dot."""

ASIDE: Final = "aside-"
"""In AWAY, before the identity of a repository that the registry does not name."""

GONE: Final = "gone-"
"""In AWAY, before the identity of a deleted repository, until its folder is empty."""

SHARED: Final = " shared"
"""Behind the time that a folder has followed, if others were created in the same second: it follows
no entry but one with an identity."""

_KEPT: Final = ("old-", "new-", "bundle-")
"""In AWAY: of a resync, which looks after them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a repository; `place` is relative to the root."""

    place: str
    identity: str = ""
    """Of its store, else that of its push log."""
    is_empty: bool = False
    """Neither changesets nor records, and therefore nobody's."""
    is_logged: bool = False
    """Its push log alone has the identity: a release before made it."""
    created: str = ""
    """Of the entry of a release before that it has followed; "" where it followed none."""

    @property
    def away(self) -> str:
        """Its name in AWAY, "" if it is elsewhere."""
        above, _, name = self.place.rpartition("/")
        return name if above == AWAY else ""

    @property
    def key(self) -> str:
        """Its name in AWAY on the way to another path."""
        return self.identity or f"entry-{self.created}"


@dataclass(slots=True)
class Plan:
    """Steps in their order; those that leave their places come first, so paths can be exchanged."""

    delete: list[Folder] = field(default_factory=list)
    take_away: list[Folder] = field(default_factory=list)
    """Into AWAY, under the key."""
    set_aside: list[tuple[Folder, str]] = field(default_factory=list)
    """With the name in AWAY."""
    give: list[tuple[str, str]] = field(default_factory=list)
    """Place and identity of a repository that has none in its store, before anything moves."""
    put: list[tuple[Folder, str]] = field(default_factory=list)
    """Folders that come to these paths, from AWAY."""


def is_kept(name: str) -> bool:
    """Whether a name in AWAY is one that no plan touches."""
    return name.startswith(_KEPT)


def plan(
    folders: Iterable[Folder],
    wanted: Mapping[str, str],
    purged: Collection[str],
    nameless: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Compare the folders with the registry.

    `wanted` has the identity of each entry by its path, archived ones included. It is "" for an
    entry of a release before; `nameless` has the time of its creation. A folder that has followed
    none stays where such an entry is.
    """
    found = sorted(folders, key=lambda one: one.place)
    targets: dict[str, str] = {}
    for path, identity in sorted(wanted.items()):
        if identity:
            targets.setdefault(identity, path)
    chosen = _chosen(found, targets)
    by_time = _by_time(found, chosen, nameless)
    above = {parent for path in wanted for parent in parents(path)}
    names = {one.away for one in found}
    made = Plan()
    for one in found:
        target = by_time.get(one.place)
        if one.identity in targets and chosen[one.identity] == one:
            target = targets[one.identity]
            if one.is_logged:
                made.give.append((one.place, one.identity))
        if target is not None:
            if one.place != target:
                made.put.append((one, target))
                if not one.away:
                    made.take_away.append(one)
        elif _is_deleted(one, targets, purged):
            made.delete.append(one)
        elif _may_stay(one, wanted, above, nameless):
            continue
        elif one.is_empty and not one.identity and _is_free(one, wanted, chosen):
            made.give.append((one.place, wanted[one.place]))
        else:
            name = _name(one, names)
            names.add(name)
            made.set_aside.append((one, name))
    return made


def _chosen(found: Iterable[Folder], targets: Mapping[str, str]) -> dict[str, Folder]:
    """Return the folder of each wanted repository: of copies the one that is in its place."""
    chosen: dict[str, Folder] = {}
    for one in found:
        path = targets.get(one.identity)
        if path is not None and (one.identity not in chosen or one.place == path):
            chosen[one.identity] = one
    return chosen


def leaving(before: Mapping[str, str], coming: Mapping[str, str]) -> dict[str, str]:
    """Return the paths whose folders leave before a registry comes, and what they have followed.

    `before` has the times that the folders have followed, `coming` those of the entries without
    identity, both by path.
    """
    then, later = Counter(before.values()), Counter(coming.values())
    changed = {
        created
        for path in {*before, *coming}
        if before.get(path) != coming.get(path)
        for created in (before.get(path), coming.get(path))
    }
    shared = {one for one in later if one in changed and max(then[one], later[one]) > 1}
    found = {}
    for path, created in before.items():
        if created in shared:
            found[path] = f"{created}{SHARED}"
        elif coming.get(path, created) != created:
            found[path] = created
    return found


def _by_time(
    found: Iterable[Folder], chosen: Mapping[str, Folder], nameless: Mapping[str, str]
) -> dict[str, str]:
    """Return the path of each folder that follows an entry without identity, by its place."""
    named = {one.place for one in chosen.values()}
    times = Counter(nameless.values())
    targets = {created: path for path, created in nameless.items() if times[created] == 1}
    places: dict[str, str] = {}
    for one in found:
        path = targets.get(one.created)
        if path is None or one.place in named:
            continue
        if path not in places or one.place == path:
            places[path] = one.place
    return {place: path for path, place in places.items()}


def _is_deleted(one: Folder, targets: Collection[str], purged: Collection[str]) -> bool:
    if not one.identity:
        # The rest of a folder that a killed run was deleting.
        return one.away.startswith(GONE)
    return one.identity in purged and one.identity not in targets


def _may_stay(
    one: Folder, wanted: Mapping[str, str], above: Collection[str], nameless: Mapping[str, str]
) -> bool:
    """Whether a folder that no entry names is in no entry's way, and nothing is known of it."""
    if one.away:
        return one.away.startswith(ASIDE) or not one.identity
    if one.place in wanted:
        is_another = one.created not in ("", nameless.get(one.place, ""))
        return not wanted[one.place] and not is_another
    is_in_the_way = one.place in above or any(path in wanted for path in parents(one.place))
    return not one.identity and not is_in_the_way


def _is_free(one: Folder, wanted: Mapping[str, str], chosen: Mapping[str, Folder]) -> bool:
    """Whether the identity that an entry names at this place is that of no folder."""
    identity = wanted.get(one.place, "")
    return bool(identity) and identity not in chosen


def _name(one: Folder, names: Collection[str]) -> str:
    name = f"{ASIDE}{one.identity or 'unknown'}"
    tries = [name, *(f"{name}-{number}" for number in range(2, len(names) + 3))]
    return next(one for one in tries if one not in names)

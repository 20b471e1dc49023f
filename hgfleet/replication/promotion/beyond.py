"""What a mirror has beyond a backup of the primary, before the primary is restored from it. Pure.

A repository is compared by its identity, a push by its number and hash:

| the mirror's log is | means | a restore of the backup alone would |
| --- | --- | --- |
| equal | both end with the same push | lose nothing |
| behind | the backup has more pushes | lose nothing |
| ahead | it goes on after the last push of the backup | lose the pushes since |
| diverged | it has another push where the backup ends | lose pushes, and have others |

A repository that the backup does not have was created since, or is lost there. Changes of paths are
told, and refuse no restore, because the restored host gets the registry of the mirrors:

| since the backup, the repository was | its folder |
| --- | --- |
| renamed by its owner | is moved to its new path by `registry apply` and the note of the rename |
| deleted | comes back, and the registry keeps the repository deleted |

Where another repository is in the way, or no note leads from the former path (a path of the
inventory), the restore is refused, and that is never accepted as a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.terms.losses import Loss, named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from hgfleet.replication.terms.losses import Known


class Standing(StrEnum):
    """How the log of a mirror compares with that of a backup."""

    EQUAL = "equal"
    BEHIND = "behind"
    AHEAD = "ahead"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Beyond:
    """A repository of which a mirror has more, or knows better, than the backup.

    `loss` has the pushes that would be lost; None where nothing may be accepted. An entry with
    `is_note` refuses no restore.
    """

    path: str
    said: str
    loss: Loss | None = None
    is_note: bool = False


def standing(held: Known, tip: Tip, hash_at: Callable[[int], str]) -> Standing:
    """Compare the end of a log in the backup with the mirror's; `hash_at` is of the mirror's."""
    if held.id > tip.id:
        return Standing.BEHIND
    if held.id == 0:
        return Standing.AHEAD if tip.id else Standing.EQUAL
    # A backup of a release before may not know the hash.
    if held.hash not in ("", hash_at(held.id)):
        return Standing.DIVERGED
    return Standing.EQUAL if held.id == tip.id else Standing.AHEAD


def beyond(
    backup: Iterable[Known],
    tips: Mapping[str, Tip],
    paths: Mapping[str, str],
    purged: Collection[str],
    hash_at: Callable[[str, int], str],
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> list[Beyond]:
    """Return what a mirror has beyond a backup.

    `tips` and `paths` (of the registry) are the mirror's, by identity, and so is `hash_at`;
    `renamed` leads from former paths to those of now.
    """
    held = _by_identity(backup, paths)
    restored = frozenset(one.path for one in held.values())
    taken = frozenset(path for identity, path in paths.items() if identity not in purged)
    found = []
    for identity, one in held.items():
        if identity in purged:
            found.append(_deleted(one.path, is_taken=one.path in taken))
            continue
        now = paths.get(identity, one.path)
        if now != one.path:
            is_moved = renamed.get(one.path) == now and one.path not in taken
            found.append(_renamed(one.path, now, is_moved=is_moved and now not in restored))
        if identity in tips:
            found += _of_log(one, identity, tips[identity], hash_at)
    for identity in (tips.keys() | paths.keys()) - held.keys():
        tip = tips.get(identity, Tip())
        if identity not in purged and (tip.id or identity in paths):
            path = named(paths.get(identity, identity), identity, paths)
            said = f"is not in the backup, and has {tip.id} pushes"
            found.append(Beyond(path, said, Loss(path, identity, min(tip.id, 1), tip.id, "")))
    return sorted(found, key=lambda one: (one.path, one.said))


def _renamed(path: str, now: str, *, is_moved: bool) -> Beyond:
    if is_moved:
        said = f"was renamed to {now} after the backup: the restore moves its folder there"
        return Beyond(path, said, is_note=True)
    return Beyond(path, f"has been {now} since the backup, and would come back under {path}")


def _deleted(path: str, *, is_taken: bool) -> Beyond:
    if is_taken:
        return Beyond(path, "was deleted after the backup, and would come back in another's place")
    said = (
        "was deleted after the backup: the registry keeps it deleted, and its folder comes back; "
        "delete the folder after the restore"
    )
    return Beyond(path, said, is_note=True)


def _by_identity(backup: Iterable[Known], paths: Mapping[str, str]) -> dict[str, Known]:
    """Return the repositories of a backup by identity; that of a release before names the path."""
    identities = {path: identity for identity, path in paths.items()}
    found = {one.repository or identities.get(one.path, ""): one for one in backup}
    found.pop("", None)
    return found


def _of_log(
    one: Known, identity: str, tip: Tip, hash_at: Callable[[str, int], str]
) -> list[Beyond]:
    match standing(one, tip, lambda number: hash_at(identity, number)):
        case Standing.AHEAD:
            first, said = one.id + 1, "has pushes {ids} after the backup"
        case Standing.DIVERGED:
            first, said = one.id, "has another push {ids} than the backup"
        case _:
            return []
    loss = Loss(one.path, identity, first, tip.id, "")
    return [Beyond(one.path, said.format(ids=_ids(loss)), loss)]


def _ids(loss: Loss) -> str:
    return str(loss.first) if loss.first == loss.last else f"{loss.first}-{loss.last}"


def refused(found: Iterable[Beyond], accepts: Callable[[Loss], bool]) -> list[Beyond]:
    """Return the entries that no operator gave up."""
    weighty = (one for one in found if not one.is_note)
    return [one for one in weighty if one.loss is None or not accepts(one.loss)]


def sentences(host: str, found: Sequence[Beyond]) -> list[str]:
    """Return a sentence for each, with the way to give it up."""
    told = []
    for one in found:
        way = f"; {one.path}@{_ids(one.loss)} gives it up" if one.loss else ""
        told.append(f"{host}: {one.path} {one.said}{way}")
    return told

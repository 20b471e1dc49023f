"""Pushes of a mirror beyond a backup of the primary, before a restore of the backup. Pure.

A repository is compared by its identity, a push by its number and hash:

| the mirror's log is | means | a restore of only the backup would |
| --- | --- | --- |
| equal | both end with the same push | lose nothing |
| behind | the backup has more pushes | lose nothing |
| ahead | it goes on after the last push of the backup | lose the pushes since |
| diverged | it has another push where the backup ends | lose pushes, and have others |

A repository that is not in the backup was created since, or is lost there. Changes of paths are
reported, and do not prevent a restore, because the restored host gets the registry of the mirrors:

| since the backup, the repository was | its folder |
| --- | --- |
| renamed by its owner | is moved to its new path by `registry apply` and the note of the rename |
| deleted | comes back, and the registry keeps the repository deleted |

If another repository is in the way, or no note leads from the former path (a path of the
inventory), the restore is refused, and no option accepts this as a loss.
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
    """How the log of a mirror compares with the log of a backup."""

    EQUAL = "equal"
    BEHIND = "behind"
    AHEAD = "ahead"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Beyond:
    """A repository of which a mirror has more pushes, or later facts, than the backup.

    `loss` has the pushes that would be lost; None if this cannot be accepted. An entry with
    `is_note` does not prevent a restore.
    """

    path: str
    said: str
    loss: Loss | None = None
    is_note: bool = False


def standing(held: Known, tip: Tip, hash_at: Callable[[int], str]) -> Standing:
    """Compare the end of a log in the backup with the mirror's log, which `hash_at` reads."""
    if held.id > tip.id:
        return Standing.BEHIND
    if held.id == 0:
        return Standing.AHEAD if tip.id else Standing.EQUAL
    # A backup of an earlier release may not have the hash.
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
    """Return the differences of a mirror from a backup that a restore would lose.

    `tips`, `paths` (of the registry) and `hash_at` belong to the mirror, by identity; `renamed`
    leads from former paths to present paths.
    """
    held = _by_identity(backup, paths)
    restored = frozenset(known.path for known in held.values())
    taken = frozenset(path for identity, path in paths.items() if identity not in purged)
    differences = []
    for identity, saved in held.items():
        if identity in purged:
            differences.append(_deleted(saved.path, is_taken=saved.path in taken))
            continue
        now = paths.get(identity, saved.path)
        if now != saved.path:
            is_moved = renamed.get(saved.path) == now and saved.path not in taken
            differences.append(_renamed(saved.path, now, is_moved=is_moved and now not in restored))
        if identity in tips:
            differences += _of_log(saved, identity, tips[identity], hash_at)
    for identity in (tips.keys() | paths.keys()) - held.keys():
        tip = tips.get(identity, Tip())
        if identity not in purged and (tip.id or identity in paths):
            path = named(paths.get(identity, identity), identity, paths)
            said = f"is not in the backup, and has {tip.id} pushes"
            differences.append(Beyond(path, said, Loss(path, identity, min(tip.id, 1), tip.id, "")))
    return sorted(differences, key=lambda entry: (entry.path, entry.said))


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
    """Return the repositories of a backup by identity; earlier releases name only the path."""
    identities = {path: identity for identity, path in paths.items()}
    held = {known.repository or identities.get(known.path, ""): known for known in backup}
    held.pop("", None)
    return held


def _of_log(
    held: Known, identity: str, tip: Tip, hash_at: Callable[[str, int], str]
) -> list[Beyond]:
    match standing(held, tip, lambda number: hash_at(identity, number)):
        case Standing.AHEAD:
            first, said = held.id + 1, "has pushes {ids} after the backup"
        case Standing.DIVERGED:
            first, said = held.id, "has another push {ids} than the backup"
        case _:
            return []
    loss = Loss(held.path, identity, first, tip.id, "")
    return [Beyond(held.path, said.format(ids=_ids(loss)), loss)]


def _ids(loss: Loss) -> str:
    return str(loss.first) if loss.first == loss.last else f"{loss.first}-{loss.last}"


def refused(found: Iterable[Beyond], accepts: Callable[[Loss], bool]) -> list[Beyond]:
    """Return the entries that no operator gave up."""
    losses = (entry for entry in found if not entry.is_note)
    return [entry for entry in losses if entry.loss is None or not accepts(entry.loss)]


def sentences(host: str, found: Sequence[Beyond]) -> list[str]:
    """Return a sentence for each entry, with the way to give it up."""
    told = []
    for entry in found:
        way = f"; {entry.path}@{_ids(entry.loss)} gives it up" if entry.loss else ""
        told.append(f"{host}: {entry.path} {entry.said}{way}")
    return told

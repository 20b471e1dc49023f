"""Repositories on a mirror's disk: where each is, its identity, and the end of its push log."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core import files, identity
from hgfleet.core.errors import PushlogError, TemporaryError
from hgfleet.core.names import MAX_SEGMENTS, path_problem
from hgfleet.core.owner import Owner
from hgfleet.pushlog import identities, log_file
from hgfleet.registry.dynamic.entry import TIME
from hgfleet.registry.provision import provisioning
from hgfleet.replication.mirror.follow_plan import AWAY, SHARED, Folder, is_kept
from hgfleet.replication.repositories import log_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from hgfleet.pushlog.log_file import Tip
    from hgfleet.replication.mirror.jobs import Listed
    from hgfleet.replication.protocol.settings import Settings

STORE: Final = ".hg/store"

MARK: Final = ".hg/hgfleet-entry"
"""File with the time of creation of the entry without identity that a repository follows."""


class Place(NamedTuple):
    """The path of a repository on this host, and the end of its push log."""

    path: str
    tip: Tip
    interrupted: bool = False
    """Whether a transaction is open, perhaps left by a killed process."""
    is_other: bool = False
    """Whether it is ahead of the primary, and differs from the primary's last record."""


def paths(root: Path) -> Iterator[str]:
    """Yield the paths of all repositories below a folder."""
    folders = [""]
    while folders:
        above = folders.pop()
        try:
            with os.scandir(root / above) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        if above and ".hg" in names:
            yield above
            continue
        for name in names:
            path = f"{above}/{name}" if above else name
            if path.count("/") < MAX_SEGMENTS and not path_problem(path):
                folders.append(path)


def away(root: Path) -> Iterator[str]:
    """Yield the places of repositories that were taken out of their own places."""
    try:
        with os.scandir(root / AWAY) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return
    yield from (f"{AWAY}/{name}" for name in names if not is_kept(name))


def folder(root: Path, place: str) -> Folder | None:
    """Read the folder at a place; None if there is no repository."""
    stored, logged = identity.of(root / place), identities.logged(root / place)
    if stored and logged not in ("", stored):
        # It claims two identities, so it has none: it is set aside, and copied again.
        return Folder(place)
    followed = created(root / place)
    if stored or logged:
        return Folder(place, stored or logged, is_logged=not stored, created=followed)
    if not (root / place / STORE).is_dir():
        # A remainder of a repository that is being deleted.
        return Folder(place) if place.startswith(f"{AWAY}/") else None
    return Folder(place, is_empty=_is_empty(root / place / STORE), created=followed)


def created(place: Path) -> str:
    """Return the time of creation of the entry that a repository follows, or ""."""
    try:
        text = (place / MARK).read_text("ascii", "replace").strip()
    except OSError:
        return ""
    return text if TIME.fullmatch(text.removesuffix(SHARED)) else ""


def mark(place: Path, created: str) -> None:
    """Record the entry that a repository follows, if there is a repository."""
    if (place / STORE).is_dir():
        files.replace(place / MARK, f"{created}\n", mode=provisioning.FILE_MODE)


def identify(place: Path, wanted: str) -> None:
    """Give a repository its identity, unless it has one."""
    if wanted and not identity.of(place):
        files.replace(
            place / STORE / identity.NAME, identity.text(wanted), mode=provisioning.FILE_MODE
        )


def _is_empty(store: Path) -> bool:
    """Whether a store has neither changesets nor records, by its files."""
    for name in ("00changelog.i", log_file.NAME):
        try:
            if (store / name).stat().st_size:
                return False
        except FileNotFoundError:
            continue
    return True


def find(root: Path) -> dict[str, Place]:
    """Return the places of the repositories, by their identities.

    A repository whose log cannot be read is left out: its job names the problem.
    """
    placed = {}
    for path in paths(root):
        store = root / path / STORE
        try:
            tip = log_file.tip(store / log_file.NAME)
        except (OSError, PushlogError):
            continue
        named = identity.of(root / path) or tip.repository
        if named and tip.repository in ("", named):
            placed[named] = Place(path, tip, (store / "journal").exists())
    return placed


def against(root: Path, placed: Mapping[str, Place], listed: Iterable[Listed]) -> dict[str, Place]:
    """Return the places, with `is_other` set for repositories that are ahead of the primary.

    If a log cannot be read, the job of its repository names the problem.
    """
    made = dict(placed)
    for remote in listed:
        place = placed.get(remote.identity)
        if place is None or remote.problem or not 0 < remote.id < place.tip.id:
            continue
        most = place.tip.id - remote.id + 1
        with contextlib.suppress(OSError, PushlogError, TemporaryError):
            hashes = log_reader.hashes(root / place.path / STORE, place.tip, most)
            made[remote.identity] = place._replace(
                is_other=hashes.get(remote.id, remote.hash) != remote.hash
            )
    return made


def emptied(root: Path, paths: Iterable[str]) -> list[str]:
    """Return which of these paths, whose repositories had records, have an empty push log now."""
    empty = []
    for path in paths:
        try:
            # pathlib would take most of the time for 10,000 repositories.
            is_empty = not os.stat(f"{root}/{path}/{STORE}/{log_file.NAME}").st_size  # noqa: PTH116
        except OSError:
            is_empty = True
        if is_empty:
            empty.append(path)
    return empty


def target(settings: Settings) -> provisioning.Target:
    """Return the settings with which this process provisions repositories, as their owner."""
    return provisioning.Target(
        root=settings.repositories,
        compiled=settings.compiled,
        manifests=settings.manifests,
        pull_bundles=settings.pull_bundles,
        hgrc=settings.hgrc,
        dynamic=settings.dynamic,
        owner=Owner(os.geteuid(), os.getegid()),
        hg=str(settings.hg),
    )

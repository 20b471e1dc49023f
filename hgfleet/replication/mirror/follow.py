"""Folders of a mirror, moved to the places where its registry has their repositories.

The registry comes first, so that readers are known before a folder moves, and each program that
serves a repository checks its identity. Folders that leave their places go through `.replication`,
so that two folders can exchange their paths. A repository is deleted only if the registry names it
as deleted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import identity
from hgfleet.core.errors import HgfleetError, RegistryError, UnavailableError
from hgfleet.registry.dynamic import dynamic_update, missing, user_repositories
from hgfleet.registry.dynamic.effective import stamp_of
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.registry.provision import moves, provisioning
from hgfleet.replication.documents.document_files import make_folders
from hgfleet.replication.mirror import asides, follow_plan, places
from hgfleet.replication.mirror.follow_plan import AWAY, GONE, SHARED, Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from pathlib import Path

    from hgfleet.registry.dynamic.effective import Stamp
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry, Repository
    from hgfleet.replication.mirror.asides import Aside
    from hgfleet.replication.mirror.follow_plan import Plan
    from hgfleet.replication.protocol.settings import Settings

LOCK_WAIT_S: Final = 10
"""Seconds that a folder waits for a push that is being applied."""

FOLLOWED: Final = ".registry-followed"
"""File next to the registry: the registry that the previous release's applier followed last."""

WHOLE_S: Final = 600.0
"""Seconds between walks through the whole disk; known places are checked each time."""


@dataclass(frozen=True, slots=True)
class _Registry:
    """The registry: `wanted` has identities by path, `served` the repositories in service.

    `nameless` has the times of creation of entries without identity.
    """

    wanted: Mapping[str, str]
    nameless: Mapping[str, str]
    served: Mapping[str, Repository]
    static: Registry
    dynamic: Dynamic


class Follow:
    """The folders of a mirror. `run` is safe in threads, and excludes other processes."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._root = settings.repositories
        self._done: tuple[Stamp, ...] = ()
        """Stamps of the registry that the last run followed without a problem."""
        self._walked: tuple[float, Stamp] = (float("-inf"), ())
        """When the whole disk was read, and the stamp of the inventory's registry at that time."""
        self._known: set[str] = set()
        """Places with repositories, seen since then."""
        self._placed: frozenset[str] = frozenset()
        """Paths whose repository was in its place, with its identity."""
        self._configured: dict[str, Any] = {}
        """Entries whose configuration was written, by path."""
        self.aside: Mapping[str, Aside] = {}
        """Folders of repositories that the registry lost, by their names in AWAY."""

    def run(self, *, expires: bool = True) -> list[str]:
        """Move the folders to their places; return a sentence for each step that failed.

        Without `expires`, no folder that was set aside is deleted because its time is over. Raises
        RegistryError if the registry cannot be read; then nothing is touched.

        The registry stays locked from the first look to the last move, so no other version of it
        comes in between. Nothing is done if the registry is as the last run followed it, its
        repositories are in their places, and it is not time to read the whole disk. A run with a
        problem does not count, so the next run tries each step again. The folders of deleted
        repositories are removed at the end, without the lock.
        """
        settings = self._settings
        with dynamic_update.locked(settings.dynamic):
            stamps = (stamp_of(settings.compiled), stamp_of(settings.dynamic))
            is_whole = self._is_walk_due(stamps[0])
            is_done = stamps == self._done and not is_whole and not self._is_emptied()
            if not stamps[1] or is_done:
                # Without the registry it is unknown where any repository belongs.
                return []
            self._done = ()
            registry = _read(settings)
            folders = self._look(registry.wanted, is_whole=is_whole)
            if registry.nameless:
                folders = self._mark(folders, registry.nameless)
            plan = follow_plan.plan(
                folders, registry.wanted, registry.dynamic.purged, registry.nameless
            )
            problems = self._carry_out(plan)
            problems += self._configure(
                registry, {folder.place: folder.identity for folder in folders}
            )
            self._note_aside(plan, registry.static, expires=expires)
            if is_whole:
                self._walked = time.monotonic(), stamps[0]
            if not problems:
                self._done = stamps
                self._placed = frozenset(
                    path for path, wanted in registry.wanted.items() if self._is_at(path, wanted)
                )
                self._forget_former_notes()
        self._empty_away(plan)
        return problems

    def leave(self, coming: Dynamic) -> None:
        """Move folders away from places that entries without identity take; `run` does the rest.

        A program that serves a repository does not notice another repository at the path of such an
        entry, so folders leave before the registry comes; the caller holds its lock. Raises
        UnavailableError if a folder cannot leave yet.
        """
        nameless = _nameless(coming, load_compiled(self._settings.compiled).repositories)
        if not nameless:
            return
        before = self._times()
        for path in {*before, *nameless}:
            if marked := places.created(self._root / path):
                before[path] = marked
        leaving = follow_plan.leaving(before, nameless)
        for name in places.away(self._root):
            if (mark := f"{places.created(self._root / name)}{SHARED}") in leaving.values():
                places.mark(self._root / name, mark)
        for path, followed in leaving.items():
            place = self._root / path
            if not (place / ".hg").is_dir():
                continue
            places.mark(place, followed)
            problems: list[str] = []
            if not self._take(Folder(path), f"left-{identity.made()}", problems):
                raise UnavailableError(f"the registry of the primary waits: {problems[0]}")

    def _mark(self, folders: list[Folder], nameless: Mapping[str, str]) -> list[Folder]:
        """Mark the folders in their places with the entries without identity that they follow."""
        before, marked = self._times(), []
        for folder in folders:
            created = before.get(folder.place) or nameless.get(folder.place, "")
            if folder.created or folder.place not in nameless or not created:
                marked.append(folder)
                continue
            places.mark(self._root / folder.place, created)
            marked.append(replace(folder, created=created))
        return marked

    def _times(self) -> dict[str, str]:
        """Return the times of creation of the entries that the folders follow, by path.

        The applier of the previous release leaves the registry that they followed last, if it
        differs from the registry that is here.
        """
        for file in (self._settings.dynamic.parent / FOLLOWED, self._settings.dynamic):
            with contextlib.suppress(RegistryError):
                if (content := user_repositories.read_content(file)) is not None:
                    entries = user_repositories.parse(content, str(file)).repositories
                    return {path: entry.created for path, entry in entries.items()}
        return {}

    def _forget_former_notes(self) -> None:
        """Remove files that the previous release's applier would compare with after a rollback."""
        folder = self._settings.dynamic.parent
        for file in (folder / FOLLOWED, folder / ".registry-following"):
            file.unlink(missing_ok=True)
        (self._root / AWAY / "taken").unlink(missing_ok=True)

    def _is_walk_due(self, compiled: Stamp) -> bool:
        at, then = self._walked
        return time.monotonic() - at >= WHOLE_S or then != compiled

    def _is_emptied(self) -> bool:
        """Whether another process took a repository, or its identity, out of its place."""
        root = self._root
        return not all(os.path.lexists(f"{root}/{path}/{identity.FILE}") for path in self._placed)

    def _is_at(self, path: str, wanted: str) -> bool:
        return bool(wanted) and identity.of(self._root / path) == wanted

    def _look(self, wanted: Iterable[str], *, is_whole: bool) -> list[Folder]:
        """Read all repositories, or only the places where they were last time and should be."""
        if is_whole:
            self._known = set(places.paths(self._root))
        self._known |= set(wanted)
        looked = [*self._known, *places.away(self._root)]
        return [
            folder for place in looked if (folder := places.folder(self._root, place)) is not None
        ]

    def _carry_out(self, plan: Plan) -> list[str]:
        problems: list[str] = []
        for place, given in plan.give:
            try:
                places.identify(self._root / place, given)
            except OSError as error:
                problems.append(f"{place}: {error}")
        for folder in plan.delete:
            if folder.away.startswith(GONE):
                continue
            if self._take(folder, f"{GONE}{folder.identity}", problems):
                self._say(f"{folder.place}: {folder.identity} was deleted, removed")
        for folder, name in plan.set_aside:
            if self._take(folder, name, problems):
                self._say(
                    f"{folder.place}: the registry does not name {folder.identity or 'it'} there; "
                    f"set aside as {AWAY}/{name}, and not served"
                )
        for folder in plan.take_away:
            self._take(folder, folder.key, problems)
        for folder, path in plan.put:
            self._put(folder, path, problems)
        return problems

    def _take(self, folder: Folder, name: str, problems: list[str]) -> bool:
        """Move a folder out of its place; False if a push is being applied, or it is gone."""
        place, away = self._root / folder.place, self._root / AWAY
        away.mkdir(mode=0o700, exist_ok=True)
        try:
            if folder.away:
                place.rename(away / name)
            else:
                with moves.at_rest(place, folder.place, LOCK_WAIT_S):
                    place.rename(away / name)
        except (HgfleetError, OSError) as error:
            problems.append(f"{folder.place}: {error}")
            return False
        if not folder.away:
            _remove_empty_parents(self._root, folder.place)
        return True

    def _put(self, folder: Folder, path: str, problems: list[str]) -> None:
        away = self._root / AWAY / (folder.away or folder.key)
        if not away.is_dir() or (self._root / path).exists():
            problems.append(
                f"{path}: its repository {folder.key} waits for {folder.place} to leave"
            )
            return
        try:
            make_folders(self._root, path.rpartition("/")[0])
            away.rename(self._root / path)
        except OSError as error:
            problems.append(f"{path}: {error}")
            return
        # The moved folder has the configuration of its former path.
        self._configured.pop(path, None)
        self._say(f"{path}: moved from {folder.place}")

    def _configure(self, registry: _Registry, before: Mapping[str, str]) -> list[str]:
        """Create missing repositories, and write the configuration of changed entries.

        `before` has the identities that were at their places before anything moved.
        """
        problems = []
        target, identities = places.target(self._settings), set(before.values()) - {""}
        raw, static = registry.dynamic.raw, registry.static.repositories
        for path, wanted in sorted(registry.wanted.items()):
            # The identity of a repository of the inventory comes from the primary, and names the
            # links to its bundles. `registry apply` writes everything else.
            state = wanted if path in static else raw[path]
            is_configured = self._configured.get(path) == state
            if is_configured and wanted and before.get(path) == wanted:
                continue
            repository, place = registry.served.get(path), self._root / path
            is_there = (place / ".hg").is_dir()
            if not is_there and wanted in identities:
                # It waits elsewhere while a push is applied: no empty repository takes its place.
                continue
            if repository is None or not (is_there or wanted):
                # An entry of an earlier release may belong to a repository that is elsewhere.
                continue
            if is_there and (is_configured or not state):
                continue
            if is_there and (problem := identity.problem(place, repository.identity)):
                problems.append(problem)
                continue
            try:
                provisioning.follow(repository, target, self._say)
                places.identify(place, repository.identity)
            except (HgfleetError, OSError) as error:
                problems.append(f"{path}: {error}")
                continue
            self._configured[path] = state
        return problems

    def _note_aside(self, plan: Plan, static: Registry, *, expires: bool) -> None:
        """Record since when folders are set aside, and delete folders whose time is over."""
        noted, now = asides.load(self._root), time.time()
        paths = {name: folder.place for folder, name in plan.set_aside}
        notes = asides.updated(noted, asides.names(self._root), paths, now)
        lost = {} if not notes else missing.load_or_none(self._settings.dynamic)
        retired = asides.retired(notes, lost, static.repositories)
        alarmed = {name: note for name, note in notes.items() if name not in retired}
        days = self._settings.keep_missing_days
        if expires:
            alarmed = asides.looked_at(alarmed, days, now)
            notes |= alarmed
        for name in asides.expired(alarmed, days, now) if expires else ():
            note = notes.pop(name)
            del alarmed[name]
            # A resync removes the folder that a killed process leaves.
            away = self._root / AWAY / f"old-{name}"
            (self._root / AWAY / name).rename(away)
            shutil.rmtree(away, ignore_errors=True)
            self._say(f"{note.path}: {AWAY}/{name} was set aside for {days} days, removed")
        if notes != noted:
            asides.save(self._root, notes)
        self.aside = alarmed

    def _empty_away(self, plan: Plan) -> None:
        """Delete the folders of repositories that the registry names as deleted."""
        away = self._root / AWAY
        for folder in plan.delete:
            name = folder.away if folder.away.startswith(GONE) else f"{GONE}{folder.identity}"
            shutil.rmtree(away / name, ignore_errors=True)


def _read(settings: Settings) -> _Registry:
    static = load_compiled(settings.compiled)
    dynamic = user_repositories.load(settings.dynamic)
    entries = {path: entry.identity for path, entry in dynamic.repositories.items()}
    declared = {path: dynamic.identities.get(path, "") for path in static.repositories}
    served = user_repositories.merged(static, dynamic).repositories
    nameless = _nameless(dynamic, static.repositories)
    return _Registry({**entries, **declared}, nameless, served, static, dynamic)


def _nameless(dynamic: Dynamic, declared: Container[str]) -> dict[str, str]:
    """Return the times of creation of the entries that an earlier release wrote, by path."""
    return {
        path: entry.created
        for path, entry in dynamic.repositories.items()
        if not entry.identity and path not in declared
    }


def _remove_empty_parents(root: Path, path: str) -> None:
    """Remove the empty folders above a path; rmdir removes no others."""
    for above in (root / path).parents:
        if above == root:
            return
        try:
            above.rmdir()
        except OSError:
            return

"""Provisioning: make the repositories of a host follow the registry (`hgfleet registry apply`).

The run is root's, in folders of the user `hg`, whose sessions run for people. So the run trusts no
content of these folders (`owned_files`): no step into a folder follows a symbolic link, new files
get a temporary name and are then renamed, and all of that happens with the effective rights of
`hg`, so that a won race gives no right that `hg` did not have.

A new repository appears complete or not at all: it is created next to its place, with its
configuration, and renamed. The next run removes the remains of a killed run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import files, identity, paths
from hgfleet.core.errors import HostError, RegistryError
from hgfleet.hg.command_server import Hg, HgError
from hgfleet.registry import owned_files
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.owned_files import (
    OPEN_FOLDER,
    UMASK,
    as_owner,
    exists,
    read_text,
)
from hgfleet.registry.provision import identities, moves, obstacles, repository_files
from hgfleet.registry.provision.obstacles import Obstacle
from hgfleet.registry.provision.repository_files import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from hgfleet.core.owner import Owner
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry, Repository

DIRECTORY_MODE: Final = 0o2750
"""setgid: the group of the folder lets web workers and bundle jobs read pushed content."""
FILE_MODE: Final = 0o640
COMPILED_MODE: Final = 0o640


@dataclass(frozen=True, slots=True)
class Target:
    """Paths of this host, and the owner of its repositories."""

    root: Path
    compiled: Path
    manifests: Path
    hgrc: Path
    owner: Owner
    pull_bundles: Path = Path(paths.PULL_BUNDLES)
    dynamic: Path | None = None
    """The file with the repositories that people created; None: there are none."""
    hg: str = ""
    """The program; by default the hg of this release, in the folder of its Python."""
    is_mirror: bool = False
    """The primary's registry has the identities, and nothing is given an identity here."""

    def manifest(self, repository: Repository) -> str | None:
        """Return the path of the clone bundle manifest of a repository; None without identity."""
        own = repository.identity
        return str(self.manifests / f"{own}.manifest") if own else None

    def pulls(self, repository: Repository) -> str | None:
        """Return the folder of the pull bundles of a repository; None without identity."""
        return str(self.pull_bundles / repository.identity) if repository.identity else None


def apply(
    registry: Registry,
    target: Target,
    *,
    write: bool,
    diff: bool,
    report: Callable[[str], None],
) -> int:
    """Apply the registry; return the number of changes (with `write` unset, of changes due).

    Raises HostError before the first write if there is an obstacle. A later failure leaves each
    repository either as it was or complete; the next run goes on from there.
    """
    if os.geteuid() not in (0, target.owner.uid):
        raise HostError("registry apply creates files that belong to hg: run it as root")
    changes = Changes(write, diff, report)
    try:
        _Run(target, changes).everything(registry)
    except OSError as error:
        # `strerror` and the name: a full disk, a missing program, a directory that vanished.
        raise HostError(f"{error.filename or target.root}: {error.strerror}") from error
    return changes.count


def configure(repository: Repository, target: Target, place: Path) -> None:
    """Give a repository the configuration of its entry, at its place or before its move there."""
    run = _Run(target, Changes(write=True, diff=False, report=lambda _: None))
    with as_owner(target.owner):
        descriptor = os.open(place, OPEN_FOLDER)
        try:
            run.configure(repository, descriptor, is_new=True)
        finally:
            os.close(descriptor)


def follow(repository: Repository, target: Target, report: Callable[[str], None]) -> None:
    """Create a user repository, or give it the configuration of its entry."""
    _Run(target, Changes(write=True, diff=False, report=report)).configure_dynamic(repository)


class _Run:
    def __init__(self, target: Target, changes: Changes) -> None:
        self.target, self.changes = target, changes
        self.is_damaged = False
        self.hg = Hg(
            Path(target.hg or Path(sys.executable).with_name("hg")),
            target.hgrc,
            owner=target.owner if os.geteuid() == 0 else None,
            umask=UMASK,
            person="operator:registry-apply",
        )

    def everything(self, registry: Registry) -> None:
        target = self.target
        with self.locked() as folder, contextlib.closing(self.hg):
            people = self.people(registry)
            with as_owner(target.owner):
                states = {path: self.state(path) for path in registry.repositories}
            blocked = [str(state) for state in states.values() if isinstance(state, Obstacle)]
            blocked += self.archived_in_the_way(registry, people)
            given, problems = self.identities(registry, people)
            blocked += [
                f"{target.root}/{path}: {problem}"
                for path, problem in problems.items()
                if path in registry.repositories
            ]
            if blocked:
                raise HostError("\n".join(blocked))
            for path, declared in registry.repositories.items():
                repository = replace(declared, identity=given.get(path, ""))
                if states[path] == "there":
                    with as_owner(target.owner), self.folder(path) as descriptor:
                        self.configure(repository, descriptor)
                else:
                    self.create(repository)
            self.follow_people(registry, people, given, problems)
            # After the stores: a store without the identity of its entry is not served.
            if folder is not None and not (target.is_mirror or self.is_damaged):
                self.note_identities(registry, people, given, folder)
            # Last: a session or worker finds in it only repositories that exist and are configured.
            self.compile(registry)
            with as_owner(target.owner):
                self.name_unregistered({*registry.repositories, *people.raw})

    def identities(
        self, registry: Registry, people: Dynamic
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the identities of all repositories, and the problems, each by path."""
        registered = {path: entry.identity for path, entry in people.repositories.items()}
        registered |= {path: people.identities.get(path, "") for path in registry.repositories}
        if self.target.dynamic is None:
            return registered, {}
        root = self.target.root
        with as_owner(self.target.owner):
            places = {path: identities.found(root / path, own) for path, own in registered.items()}
        return identities.of_mirror(places) if self.target.is_mirror else identities.decide(places)

    def note_identities(
        self, registry: Registry, people: Dynamic, given: Mapping[str, str], folder: int
    ) -> None:
        """Record the identities of repositories in the registry."""
        file, owner = self.target.dynamic, self.target.owner
        assert file is not None
        with as_owner(owner), dynamic_update.change(file, folder, renews=True) as entries:
            entries.keep_identities(registry.repositories.keys())
            for path, own in given.items():
                if (stored := identity.of(self.target.root / path)) not in ("", own):
                    with self.folder(path) as opened:
                        repository_files.identify(path, own, opened, self.changes, other=stored)
                if path in registry.repositories and people.identities.get(path) != own:
                    entries.note_identity(path, own)
                elif path in entries and entries[path].identity != own:
                    entries[path] = replace(entries[path], identity=own)
                else:
                    continue
                self.changes.record(f"{path}: its identity is {own}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[int | None]:
        """Exclude other runs, and people who create or archive repositories over SSH.

        Yields the folder of the dynamic registry, open and locked, if there is one. The locks are
        on directories, so no lock file is left behind.
        """
        for place in (self.target.root, self.target.compiled.parent):
            if not place.is_dir():
                raise HostError(f"{place} is not a directory; the role `mercurial` creates it")
        descriptor = os.open(
            self.target.compiled.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        )
        try:
            with contextlib.ExitStack() as stack:
                folder = None
                if self.changes.write:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    if self.target.dynamic is not None and self.target.dynamic.parent.is_dir():
                        folder = stack.enter_context(dynamic_update.locked(self.target.dynamic))
                yield folder
        finally:
            os.close(descriptor)

    def folder(self, path: str) -> AbstractContextManager[int]:
        return owned_files.open_below(self.target.root, path)

    def state(self, path: str) -> str:
        return obstacles.state(self.target.root, self.target.owner, path)

    def create(self, repository: Repository) -> None:
        """Make a complete repository next to its place, and rename it."""
        self.changes.record(f"{repository.path}: repository created")
        if not self.changes.write:
            return
        parent, _, name = repository.path.rpartition("/")
        new = f".{name}.new"  # no registered path can have a segment like this
        with as_owner(self.target.owner):
            self.make_parents(parent)
            with self.folder(parent) as descriptor:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(new, dir_fd=descriptor)
                owned_files.make_folder(new, descriptor, DIRECTORY_MODE)
        self.hg_init(self.target.root / parent / new)
        with as_owner(self.target.owner), self.folder(parent) as descriptor:
            created = os.open(new, OPEN_FOLDER, dir_fd=descriptor)
            try:
                self.configure(repository, created, is_new=True)
                repository_files.mark_from_start(created)
            finally:
                os.close(created)
            os.rename(new, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            os.fsync(descriptor)

    def make_parents(self, path: str) -> None:
        above = ""
        for segment in path.split("/") if path else []:
            with self.folder(above) as descriptor:
                if not exists(segment, descriptor):
                    owned_files.make_folder(segment, descriptor, DIRECTORY_MODE)
            above = f"{above}/{segment}" if above else segment

    def hg_init(self, place: Path) -> None:
        try:
            self.hg.run("init", "--", place)
        except HgError as error:
            raise HostError(f"{place}: {error}") from error

    def configure(self, repository: Repository, descriptor: int, *, is_new: bool = False) -> None:
        # Without bundles there is no link: bundles of an earlier time must not be advertised.
        manifest = self.target.manifest(repository) if repository.bundles else None
        # Pull bundles are sent only to clients that may read the repository.
        links = {"clonebundles.manifest": manifest, "pullbundles": self.target.pulls(repository)}
        uid = self.target.owner.uid
        repository_files.configure(repository, descriptor, links, self.changes, uid, is_new=is_new)

    def compile(self, registry: Registry) -> None:
        text = dump_compiled(registry)
        place = self.target.compiled
        descriptor = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            before = read_text(descriptor, place.name, os.geteuid(), COMPILED_MODE)
            if before != text:
                self.changes.record(f"{place} written")
                self.changes.show(str(place), before or "", text)
                if self.changes.write:
                    files.replace_at(
                        descriptor,
                        place.name,
                        text,
                        mode=COMPILED_MODE,
                        group=self.target.owner.gid,
                    )
        finally:
            os.close(descriptor)

    def people(self, registry: Registry) -> Dynamic:
        """Read the repositories that people created, and finish their moves.

        A wrong file, or a wrong entry, does not keep the inventory's repositories from being
        applied: it is named and left as it is.
        """
        if self.target.dynamic is None:
            return user_repositories.NOTHING
        try:
            people = user_repositories.load(self.target.dynamic)
        except RegistryError as error:
            self.changes.report(f"{error}; repositories of people keep their settings")
            self.is_damaged = True
            return user_repositories.NOTHING
        for problem in people.problems():
            self.changes.report(problem)
        for path, by in user_repositories.shadowed(registry, people).items():
            self.changes.report(f"{path}: created by a person, and {by} of the inventory hides it")
        self.finish_renames(registry, people)
        return people

    def follow_people(
        self,
        registry: Registry,
        people: Dynamic,
        given: Mapping[str, str],
        problems: Mapping[str, str],
    ) -> None:
        """Make the repositories that people created follow their namespaces."""
        served = user_repositories.merged(registry, people).repositories
        for path in sorted(set(people.raw) - set(registry.repositories)):
            if path in problems:
                self.changes.report(f"{path}: {problems[path]}")
            elif (repository := served.get(path)) is not None:
                self.configure_dynamic(replace(repository, identity=given.get(path, "")))
            elif path in given and self.is_there(path):
                with as_owner(self.target.owner), self.folder(path) as descriptor:
                    repository_files.identify(path, given[path], descriptor, self.changes)

    def is_there(self, path: str) -> bool:
        with as_owner(self.target.owner):
            return self.state(path) == "there"

    def archived_in_the_way(self, registry: Registry, people: Dynamic) -> list[str]:
        """Return obstacles: declaring the path of an archived repository must not give it away."""
        return [
            f"{self.target.root}/{path}: {entry.owner} has archived a repository there; "
            f"`hgfleet repo purge --now {path} {path}` deletes it for good"
            for path, entry in people.repositories.items()
            if path in registry.repositories and entry.archived is not None
        ]

    def finish_renames(self, registry: Registry, people: Dynamic) -> None:
        """Move the folders of repositories to the paths that their owners gave them.

        A rename was killed, or a restore brought the former path back. The lock of the dynamic
        registry is held, so no session moves them at the same time.
        """
        root, is_mirror = self.target.root, self.target.is_mirror
        with as_owner(self.target.owner):
            for path, entry in people.repositories.items():
                old = moves.former(root, path, entry, registry, people, is_mirror=is_mirror)
                if old is None or path in registry.repositories:
                    continue
                self.changes.record(f"{path}: moved from {old}")
                if self.changes.write:
                    self.make_parents(path.rpartition("/")[0])
                    with moves.at_rest(root / old, path):
                        (root / old).rename(root / path)

    def configure_dynamic(self, repository: Repository) -> None:
        path = repository.path
        with as_owner(self.target.owner):
            state = self.state(path)
            if state == "there":
                with self.folder(path) as descriptor:
                    self.configure(repository, descriptor)
                    repository_files.unmark(path, descriptor, self.changes)
                return
        if isinstance(state, Obstacle):
            self.changes.report(str(state))
        else:
            # Its session was killed before the repository was there, or a disk was replaced.
            self.create(repository)

    def name_unregistered(self, known: set[str]) -> None:
        """Name the repositories on disk that are not registered: information, not a change."""
        unregistered = []
        for place, directories, _ in os.walk(self.target.root):
            if ".hg" in directories:
                directories.clear()
                unregistered.append(os.path.relpath(place, self.target.root))
            else:
                directories.sort()
                if place == str(self.target.root):
                    # Folders of moves, deletions and sessions, which empty them by themselves.
                    directories[:] = [name for name in directories if name[0] != "."]
        for path in sorted(set(unregistered) - known):
            self.changes.report(
                f"{path}: on disk but not in the registry; kept, and served by nothing"
            )

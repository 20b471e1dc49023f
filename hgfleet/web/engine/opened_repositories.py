"""hgweb objects, kept for each repository and used by one thread at a time.

hgweb claims to be safe in threads, but it shares a list of repository objects without a lock and
initialises global state on its first requests: under load, the first answers are errors. Here each
object has one user at a time; a second thread that needs the same repository at the same moment
gets an object of its own, and both stay for the next requests. An object is dropped when the
repository's fingerprint has changed since it was made, so no answer can be older than the
fingerprint that its request found.

The registry is replaced in one step, and on a mirror the folders of repositories are moved after
it: a folder may have another repository than its entry says. So the entry's identity is compared
with the identity in the folder at each request, with the identity in the opened store when an
object is made, and with the folder again before an answer is sent.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mercurial import error
from mercurial.repo import factory

from hgfleet.core import identity as identities
from hgfleet.hg import fingerprint as files
from hgfleet.hg import opened_identity
from hgfleet.web.engine import hgweb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.hg.fingerprint import Fingerprint
    from hgfleet.web.engine.places import Place

IDLE: Final = 256
"""Objects kept for later, over all repositories, per process (a few hundred KB each and more for
large repositories: the index of the changelog is read into memory)."""


class UnavailableRepositoryError(Exception):
    """The registry has the repository, but it cannot be opened on this host right now."""


class AwayError(UnavailableRepositoryError):
    """A repository for which this host does not answer at the moment."""

    def __init__(self, problem: str, *, is_parked: bool = False) -> None:
        super().__init__(problem)
        self.is_parked = is_parked
        """The applier has parked it; if not, another repository is in its place."""


@dataclass(frozen=True, slots=True)
class Served:
    """An hgweb object on loan; hand it back with `Repositories.release`."""

    place: Place
    application: Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
    fingerprint: Fingerprint
    generation: int


class Repositories:
    """All hgweb objects of this process."""

    def __init__(self, root: Path, idle: int = IDLE) -> None:
        """Serve repositories below `root`, keeping up to `idle` objects for later."""
        self._root = root
        self._capacity = idle
        self._lock = threading.Lock()
        # Making an object runs code of core and of extensions that initialises state shared by all
        # threads; so objects are made one at a time.
        self._make_lock = threading.Lock()
        self._idle: OrderedDict[str, list[Served]] = OrderedDict()
        self._count = 0
        self._looked = 0
        self._files: dict[str, tuple[str, ...]] = {}
        self._base: Any = None
        self._configuration = _configuration_files()
        self._configured: Fingerprint | None = None
        self.generation = 0

    def warm(self) -> None:
        """Load configuration and extensions now instead of during the first request."""
        with self._make_lock:
            self._base_ui()

    def fingerprint(self, path: str) -> Fingerprint:
        """The fingerprint of a repository at this moment."""
        watched = self._files.get(path)
        if watched is None:
            watched = self._files[path] = files.paths(self._root / path / ".hg")
        return files.read_repository(watched)

    def check(self, path: str, identity: str) -> None:
        """Raise AwayError unless the repository at a path has this identity."""
        if problem := identities.problem(f"{self._root}/{path}", identity):
            raise AwayError(problem)

    def changed(self, path: str, identity: str) -> int | None:
        """The time of the last push in seconds since the epoch.

        None before the first push, and for a repository of another identity.
        """
        try:
            self.check(path, identity)
            changelog = (self._root / f"{path}/.hg/{files.WATCHED[files.CHANGELOG]}").stat()
            return changelog.st_mtime_ns // 1_000_000_000
        except (OSError, AwayError):
            return None

    def is_readable(self, path: str) -> bool:
        """Whether this process can read the repository at all."""
        # Plain text: health checks and lists do this for many repositories, and joining paths took
        # more processor time than the look.
        hg = f"{self._root}/{path}/.hg"
        return os.access(f"{hg}/requires", os.R_OK) and os.access(f"{hg}/store", os.R_OK | os.X_OK)

    def check_configuration(self) -> int:
        """Notice changed configuration files; return the number of the configuration in effect.

        Extensions that a new configuration names are loaded; those it no longer names stay until
        the process ends, since Python cannot unload them.
        """
        if self._configuration:
            current = files.read(self._configuration)
            if current != self._configured:
                with self._make_lock:
                    if current != self._configured:
                        self._forget()
                        self._base = None
                        self._configured = current
                        self.generation += 1
        return self.generation

    def forget_except(self, paths: Iterable[str]) -> None:
        """Drop the objects of repositories that are not among the paths."""
        keep = set(paths)
        with self._lock:
            for path in [path for path in self._idle if path not in keep]:
                self._count -= len(self._idle.pop(path))
            for path in [path for path in self._files if path not in keep]:
                del self._files[path]

    def acquire(self, place: Place, fingerprint: Fingerprint) -> Served:
        """Lend an hgweb object of this identity that has seen at least this fingerprint.

        Raises UnavailableRepositoryError.
        """
        path, wanted = place.path, (place, fingerprint, self.generation)
        with self._lock:
            waiting = self._idle.get(path)
            while waiting:
                served = waiting.pop()
                self._count -= 1
                if (served.place, served.fingerprint, served.generation) == wanted:
                    return served
            self._idle.pop(path, None)
        with self._make_lock:
            return self._make(place, fingerprint)

    def release(self, served: Served) -> None:
        """Take an object back.

        An object whose fingerprint had not settled is not used again: it may have read older
        content of files that look the same.
        """
        if served.generation != self.generation or not served.fingerprint.is_settled():
            return
        with self._lock:
            self._idle.setdefault(served.place.path, []).append(served)
            self._idle.move_to_end(served.place.path)
            self._count += 1
            while self._count > self._capacity:
                path, oldest = next(iter(self._idle.items()))
                oldest.pop(0)
                self._count -= 1
                if not oldest:
                    del self._idle[path]
        self._look_at_one()

    def _look_at_one(self) -> None:
        """Drop the objects of the next repository, in turn, if it has changed.

        They would not be lent again, and they hold the files of an old store
        (hgext/pinned_store.py).
        """
        with self._lock:
            if not self._idle:
                return
            self._looked = (self._looked + 1) % len(self._idle)
            path = next(itertools.islice(self._idle, self._looked, None))
        fingerprint = self.fingerprint(path)
        with self._lock:
            waiting = self._idle.get(path, [])
            current = [served for served in waiting if served.fingerprint == fingerprint]
            if len(current) < len(waiting):
                self._count -= len(waiting) - len(current)
                if current:
                    self._idle[path] = current
                else:
                    del self._idle[path]

    def _forget(self) -> None:
        with self._lock:
            self._idle.clear()
            self._count = 0

    def _base_ui(self) -> Any:
        if self._base is None:
            self._base = hgweb.load_ui()
        return self._base

    def _make(self, place: Place, fingerprint: Fingerprint) -> Served:
        generation, path = self.generation, place.path
        ui = self._base_ui().copy()
        place.configure(ui)
        try:
            application = hgweb.Hgweb(
                factory.repository(ui, os.fsencode(self._root / path)),
            )
            opened = opened_identity.of(application.repository)
            if place.identity not in ("", opened):
                raise UnavailableRepositoryError(
                    f"{path}: opened repository {opened or 'without identity'}, "
                    f"expected {place.identity}"
                )
            return Served(place, application, fingerprint, generation)
        except (error.RepoError, error.Abort, OSError) as problem:
            raise UnavailableRepositoryError(f"{path}: {problem}") from problem


def _configuration_files() -> tuple[str, ...]:
    """The files that HGRCPATH names, with the files of the folders that it names."""
    listed: list[str] = []
    for item in os.environ.get("HGRCPATH", "").split(os.pathsep):
        if item:
            path = Path(item)
            listed.append(item)
            if path.is_dir():
                listed += [str(entry) for entry in sorted(path.glob("*.rc"))]
    return tuple(listed)

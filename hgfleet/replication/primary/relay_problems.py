"""Problems of a relay, its host, its mirrors and its repositories."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from hgfleet.replication.terms import repository_fences

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from hgfleet.replication.terms.repository_fences import Fenced

MOST: Final = 1000
"""Entries of the state file for repositories and subjects; further entries are in the journal."""


class Problems:
    """The problems of a relay. Each is in the journal once, and in the state while it lasts."""

    def __init__(self, terms: Path, say: Callable[..., None]) -> None:
        self._terms, self._say = terms, say
        self.host: dict[str, str] = {}
        """Problems of the relay, its host and its mirrors, by a name for each."""
        self.unpublished: dict[str, str] = {}
        """Reasons, by identity, why repositories cannot be published."""
        self.fenced: dict[str, Fenced] = {}
        """Repositories, by identity, that take no pushes until an operator lifts the fence."""
        self._unwritten: dict[str, Fenced] = {}
        """Fences that the disk did not take: sessions do not see them yet."""
        self._lock = threading.RLock()
        """Threads write and read fences: a read that began before a fence must not drop it."""

    def note(self, name: str, reason: str, event: str = "unpublished") -> None:
        """Record a problem of the host, and log it as this event."""
        if self.host.get(name) != reason:
            self._say(event, reason=reason)
        self.host[name] = reason

    def set(self, name: str, reason: str, event: str = "unpublished") -> None:
        """Record a problem of the host, or end it if there is no reason."""
        if reason:
            self.note(name, reason, event)
        else:
            self.end(name)

    def end(self, name: str) -> None:
        """End a problem of the host."""
        self.host.pop(name, None)

    def ignore(self, subject: str, reason: str) -> None:
        """Record that a message was ignored."""
        # Do not log each message: a defective mirror sends a message every second.
        if self.host.get(f"subject {subject}") != reason:
            self._say("ignored", subject=subject, reason=reason)
        if len(self.host) < MOST:
            self.host[f"subject {subject}"] = reason

    def leave(self, repository: str, path: str, reason: str) -> None:
        """Record that a repository cannot be published."""
        if self.unpublished.get(repository) != reason:
            self._say("unpublished", repository=path, reason=reason)
        self.unpublished[repository] = reason

    def fence(self, fenced: Fenced, *, new: bool) -> None:
        """Fence a repository, so that sessions refuse pushes to it, and record it (I/O).

        A fence that is not `new` has a file, unless an operator has just removed it.
        """
        repository = fenced.repository
        with self._lock:
            self.recheck(repository)
            is_written = repository_fences.find(self._terms, repository) is not None
            if not (new or is_written):
                return
            is_known = repository in self.fenced
            self.fenced[repository] = fenced
            self.unpublished[repository] = fenced.operators
            if not is_written:
                self._write(fenced)
            if not is_known:
                self._say(
                    "repository-fenced",
                    repository=fenced.path,
                    push=f"{repository}.{fenced.number}",
                    reason=fenced.operators,
                )

    def recheck(self, repository: str) -> None:
        """Check whether an operator has lifted the fence of a repository (I/O)."""
        with self._lock:
            if repository not in self.fenced or repository in self._unwritten:
                return
            if repository_fences.find(self._terms, repository) is None:
                self._say("fence-lifted", repository=self.fenced.pop(repository).path)

    def _write(self, fenced: Fenced) -> None:
        try:
            repository_fences.fence(self._terms, fenced)
        except OSError as error:
            self._unwritten[fenced.repository] = fenced
            self.note("fences", f"the fence of {fenced.path} cannot be written: {error}")
        else:
            self._unwritten.pop(fenced.repository, None)
            if not self._unwritten:
                self.end("fences")

    def look(self) -> None:
        """Read the fences of this host again, because operators lift them (I/O)."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        for fenced in list(self._unwritten.values()):
            self._write(fenced)
        try:
            fences = repository_fences.read(self._terms)
        except OSError as error:
            self.note("fences", f"the fences of repositories cannot be read: {error}")
            return
        for repository in self.fenced.keys() - fences.keys() - self._unwritten.keys():
            self._say("fence-lifted", repository=self.fenced[repository].path)
        self.fenced = fences | self._unwritten

    def keep(self, served: Collection[str]) -> None:
        """End the problems of repositories that are no longer in service; their fences stay."""
        for repository in self.unpublished.copy().keys() - set(served):
            self.unpublished.pop(repository, None)

    def purge(self, purged: Collection[str]) -> None:
        """Remove the fences of deleted repositories (I/O)."""
        problem = ""
        with self._lock:
            for repository in [known for known in self.fenced if known in purged]:
                path = self.fenced[repository].path
                try:
                    repository_fences.lift(self._terms, repository)
                except OSError as error:
                    problem = f"the fence of {path} cannot be removed: {error}"
                else:
                    self._unwritten.pop(repository, None)
                    del self.fenced[repository]
                    self._say("fence-lifted", repository=path)
            self.set("fences of deleted repositories", problem)

    def state(self, paths: Mapping[str, str]) -> dict[str, Any]:
        """Describe the problems and the fences; `paths` are by identity."""
        # Threads may add fences at the same time. They hold the lock while they write to the disk,
        # and the relay does not wait for this: a copy is a single step of the interpreter.
        host, unpublished, fences = self.host.copy(), self.unpublished.copy(), self.fenced.copy()
        named = {paths.get(identity, identity): reason for identity, reason in unpublished.items()}
        fenced = {
            identity: [paths.get(identity, fenced.path), fenced.operators]
            for identity, fenced in sorted(fences.items())[:MOST]
        }
        return {
            "problems": dict([*host.items(), *named.items()][:MOST]),
            "fenced": fenced,
            "fenced_repositories": len(fences),
        }

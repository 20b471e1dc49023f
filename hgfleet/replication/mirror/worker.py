"""Jobs of a worker: apply the pushes that arrived to a repository of a mirror.

A job names the identity of a repository. The mirror's registry has its path when the job runs, and
the folder there must have that identity. A job reads the mirror's position again, under the
repository's lock. So a job changes nothing twice, even if it runs twice, or at the same time as a
job that a killed applier left. Changegroups that are too large for a message come from the brokers'
object store. Changegroups that it does not have, and records that no message brought, come from the
source.
"""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from mercurial import error

from hgfleet.core.errors import HostError, RegistryError, UnavailableError
from hgfleet.hg.opened_place import OpenedPlace
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import parse
from hgfleet.replication.mirror import apply
from hgfleet.replication.mirror.failures import Failure, Kind, classify
from hgfleet.replication.mirror.jobs import Job, Result, Task
from hgfleet.replication.mirror.record_order import Step
from hgfleet.replication.repositories.errors import DivergedError, MissingError, RemovalError
from hgfleet.replication.source.client import GoneError, RepositoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import BinaryIO

    from hgfleet.pushlog.record import Record
    from hgfleet.replication.repositories.readers_gate import Gate
    from hgfleet.replication.repositories.registry_paths import RegistryPaths

    Kept = Callable[[bytes, Record], AbstractContextManager[BinaryIO]]

OPENED: Final = 32
"""Repositories that a worker keeps open; to open a repository takes some milliseconds."""

RECORDS: Final = 64
"""Records from the source that are applied after each check of the readers."""

# A changegroup that is cut off, of another version, or not compressed as expected.
_UNREADABLE: Final = (apply.IncompleteError, error.StorageError, error.Abort, zlib.error, EOFError)
_MALFORMED: Final = (struct.error, ValueError, IndexError)


class Source(Protocol):
    """Requests of a mirror to the primary, by identity.

    All raise UnavailableError if it does not answer, RepositoryError if it cannot fulfil them.
    """

    def log_after(self, identity: str, after: int) -> Iterator[bytes]:
        """Yield the lines of the push log after a record."""

    def changegroup(self, identity: str, nodes: Sequence[str]) -> AbstractContextManager[BinaryIO]:
        """Open a changegroup (version 03, zlib) of exactly these changesets."""


class Worker:
    """Repositories that a worker process has open, and its source."""

    def __init__(
        self,
        root: Path,
        paths: RegistryPaths,
        source: Source | None,
        repair: Callable[[str], None] | None = None,
        gate: Gate | None = None,
        sync: Callable[[], None] | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._root = root
        self._paths = paths
        self._source = source
        self._repair = repair
        self._gate = gate
        self._sync = sync
        self._kept = kept
        """Opens the changesets of a push that are too large for its message, from the brokers."""
        self._opened: dict[str, tuple[Any, OpenedPlace, Path]] = {}

    def run(self, job: Job) -> Result:
        """Do a job; nothing is raised, except at the end of the process.

        The position in the result is on the disk, because the mirror reports that it shows it.
        """
        failure = None
        try:
            self._do(job)
        except Exception as problem:
            self._opened.pop(job.identity, None)
            failure = failure_of(problem)
        try:
            tip = apply.tip_of(self._open(job.identity))
            # Even if this job applied nothing, a worker that was killed may have.
            return self._synced() or Result(tip, failure)
        except Exception as problem:
            self._opened.pop(job.identity, None)
            return Result(Tip(), failure or failure_of(problem))

    def _synced(self) -> Result | None:
        """Sync the writes of jobs to the disk; return a result if this fails."""
        try:
            if self._sync is not None:
                self._sync()
        except HostError as problem:
            return Result(Tip(), Failure(Kind.HOST, str(problem)))
        return None

    def _do(self, job: Job) -> None:
        if job.task is Task.REPAIR:
            self._make(job)
            return
        repo = self._open(job.identity)
        if self._gate is not None:
            self._gate.check(self._path(job.identity), job.stamps)
        for line, changegroup in job.messages:
            record = _record(job, line)
            if record.kind == "adoption" and _is_empty(repo):
                step = Step.GAP
            else:
                step = self._apply(repo, job, line, record, changegroup)
            if step is Step.GAP:
                repo = self._caught_up(repo, job)
                step = self._apply(repo, job, line, record, changegroup)
                if step is Step.GAP:
                    raise RepositoryError(
                        f"record {record.id} arrived, but the source has no record before it"
                    )
        if job.up_to_date:
            self._caught_up(repo, job)

    def _apply(self, repo: Any, job: Job, line: bytes, record: Record, changegroup: bytes) -> Step:
        if not record.changesets:
            return apply.apply(repo, line, record, None)
        if changegroup:
            try:
                return apply.apply(repo, line, record, io.BytesIO(changegroup))
            except (*_UNREADABLE, *_MALFORMED):
                # The message may be damaged; the source's answer decides.
                if self._source is None:
                    raise
        return self._fetched(repo, job, line, record, kept=None if changegroup else self._kept)

    def _fetched(
        self, repo: Any, job: Job, line: bytes, record: Record, *, kept: Kept | None = None
    ) -> Step:
        """Apply a record, with changesets that the brokers keep, or else from the source."""
        with apply.locked(repo, job.identity):
            step = apply.next_step(repo, line, record)
        if step is not Step.APPLY:
            return step
        if kept is not None:
            try:
                with kept(line, record) as data:
                    return apply.apply(repo, line, record, data)
            except (UnavailableError, *_UNREADABLE, *_MALFORMED):
                # The brokers do not have it, or only in part; the source's answer decides.
                if self._source is None:
                    raise
        try:
            with self._connected().changegroup(job.identity, record.changesets) as data:
                return apply.apply(repo, line, record, data)
        except GoneError as problem:
            # A later record removes the changesets, so the source no longer has them.
            raise RemovalError(str(problem)) from problem

    def _make(self, job: Job) -> None:
        """Replace the repository by a fresh copy from the source."""
        self._opened.pop(job.identity, None)
        if self._repair is None:
            raise UnavailableError("this host has no source to repair from")
        self._repair(job.identity)

    def _caught_up(self, repo: Any, job: Job) -> Any:
        """Apply the source's pushes after the mirror's position; return the present repository.

        An empty repository becomes a copy of the source's state, which is faster than thousands of
        records. For a repository that was adopted it is also the only way: no record has the
        changesets before its first record.
        """
        with apply.locked(repo, job.identity):
            tip = apply.tip_of(repo)
            is_empty = _is_empty(repo)
        lines = self._connected().log_after(job.identity, tip.id)
        if is_empty and next(lines, None) is not None:
            # The state includes all pushes of the job.
            self._make(job)
            return self._open(job.identity)
        while some := list(itertools.islice(lines, RECORDS)):
            # The pushes are in the log of the primary, so its present readers are new enough.
            self._check_readers(job)
            for line in some:
                record = _record(job, line)
                if record.changesets:
                    self._fetched(repo, job, line, record)
                else:
                    apply.apply(repo, line, record, None)
        return repo

    def _check_readers(self, job: Job) -> None:
        """Check with the source the readers of pushes that came from it."""
        if self._gate is not None:
            self._gate.check(self._path(job.identity))

    def _connected(self) -> Source:
        if self._source is None:
            raise UnavailableError("this host has no source to fetch from")
        return self._source

    def _path(self, identity: str) -> str:
        """Return the present path of a repository; raises MissingError."""
        try:
            return self._paths.read().path(identity)
        except RegistryError as error:
            raise MissingError(str(error)) from error

    def _open(self, identity: str) -> Any:
        """Return a repository, opened again if another repository has taken its place."""
        place = self._root / self._path(identity)
        opened = self._opened.pop(identity, None)
        if opened is None or opened[2] != place or not opened[1].is_there():
            if not (place / ".hg").is_dir():
                raise MissingError(
                    f"{place}: expected repository {identity}; the documents bring it"
                )
            repo = apply.open_repository(place)
            opened = (repo, OpenedPlace(repo.path), place)
        self._opened[identity] = opened
        while len(self._opened) > OPENED:
            del self._opened[next(iter(self._opened))]
        return opened[0]


def _is_empty(repo: Any) -> bool:
    """Whether a repository has neither changesets nor records."""
    return not len(repo) and not apply.tip_of(repo).id


def _record(job: Job, line: bytes) -> Record:
    """Read a record of a job; raises PushlogError, or DivergedError for another repository."""
    record = parse(line)
    if record.repository != job.identity:
        raise DivergedError(f"record {record.id} belongs to repository {record.repository}")
    return record


def failure_of(problem: BaseException) -> Failure:
    """Return the failure; an unknown error is named with its class."""
    match problem:
        case GoneError():
            # It left the service of the primary, and soon this mirror's registry will say so.
            kind = Kind.MISSING
        case RepositoryError():
            kind = Kind.REFUSED
        case _:
            kind = classify(problem)
    text = f"{type(problem).__name__}: {problem}" if kind is Kind.POISON else str(problem)
    return Failure(kind, text[:1000])

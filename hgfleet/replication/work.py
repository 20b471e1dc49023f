"""Jobs of a worker: bring one repository of a mirror up to the pushes that arrived.

A job reads the mirror's position anew, under the repository's lock, so a job that runs twice, or
beside another one that a killed applier left, changes nothing twice. Records that no message
brought, and changegroups that are too large for one, come from the source.
"""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from mercurial import error

from hgfleet.core.errors import UnavailableError
from hgfleet.hg.opened_place import OpenedPlace
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import parse
from hgfleet.replication import apply, bootstrap
from hgfleet.replication.failures import Failure, Kind, MissingError, RemovalError, classify
from hgfleet.replication.jobs import Job, Result, Task
from hgfleet.replication.position import Step
from hgfleet.replication.source_client import GoneError
from hgfleet.replication.source_requests import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import BinaryIO

    from hgfleet.pushlog.record import Record
    from hgfleet.replication.registry_gate import Gate
    from hgfleet.replication.snapshot import State

OPENED: Final = 32
"""Repositories that a worker keeps open; opening one takes some milliseconds."""

RECORDS: Final = 64
"""Records from the source that are applied after one look at the readers."""

# A changegroup that is cut off, of another version, or not compressed as it should be.
_UNREADABLE: Final = (apply.IncompleteError, error.StorageError, error.Abort, zlib.error, EOFError)
_MALFORMED: Final = (struct.error, ValueError, IndexError)


class Source(Protocol):
    """What a mirror asks the primary for. All raise UnavailableError if it does not answer."""

    def log_after(self, path: str, after: int) -> Iterator[bytes]:
        """Yield the lines of the push log after a record."""

    def changegroup(self, path: str, nodes: Sequence[str]) -> AbstractContextManager[BinaryIO]:
        """Open a changegroup (version 03, zlib) of exactly these changesets."""

    def changesets(self, path: str, selection: Selection) -> AbstractContextManager[BinaryIO]:
        """Open a changegroup (version 03, zlib) of a selection."""

    def state(self, path: str) -> State:
        """Return the state of a repository after its last record."""


class Worker:
    """Repositories that one worker process has open, and its source."""

    def __init__(
        self,
        root: Path,
        source: Source | None,
        repair: Callable[[str, str], None] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._root = root
        self._source = source
        self._repair = repair
        self._gate = gate
        self._opened: dict[str, tuple[Any, OpenedPlace]] = {}

    def run(self, job: Job) -> Result:
        """Do a job; never raises but for the end of the process."""
        failure = None
        try:
            self._do(job)
        except Exception as problem:
            self._opened.pop(job.path, None)
            failure = Failure(classify(problem), reason_of(problem))
        try:
            return Result(apply.tip_of(self._open(job.path)), failure)
        except Exception as problem:
            self._opened.pop(job.path, None)
            return Result(Tip(), failure or Failure(classify(problem), reason_of(problem)))

    def _do(self, job: Job) -> None:
        if job.task is Task.REPAIR:
            self._opened.pop(job.path, None)
            if self._repair is None:
                raise UnavailableError("this host has no source to repair from")
            self._repair(job.path, job.source_path)
            return
        repo = self._open(job.path)
        if self._gate is not None:
            self._gate.check(job.path, job.stamps)
        for line, changegroup in job.messages:
            record = parse(line)
            if record.kind == "adoption" and bootstrap.is_empty(repo):
                step = Step.GAP
            else:
                step = self._apply(repo, job, line, record, changegroup)
            if step is Step.GAP:
                self._catch_up(repo, job)
                step = self._apply(repo, job, line, record, changegroup)
                if step is Step.GAP:
                    raise UnavailableError(
                        f"record {record.id} arrived, and the source has none before it"
                    )
        if job.up_to_date:
            self._catch_up(repo, job)

    def _apply(self, repo: Any, job: Job, line: bytes, record: Record, changegroup: bytes) -> Step:
        if not record.changesets:
            return apply.apply(repo, line, record, None)
        if changegroup:
            try:
                return apply.apply(repo, line, record, io.BytesIO(changegroup))
            except (*_UNREADABLE, *_MALFORMED):
                # The message may be damaged; what the source sends decides.
                if self._source is None:
                    raise
        return self._fetched(repo, job, line, record)

    def _fetched(self, repo: Any, job: Job, line: bytes, record: Record) -> Step:
        with apply.locked(repo):
            step = apply.next_step(repo, line, record)
        if step is not Step.APPLY:
            return step
        try:
            with self._connected().changegroup(job.source_path, record.changesets) as data:
                return apply.apply(repo, line, record, data)
        except GoneError as problem:
            # A later record removes them, and the source has them no more.
            raise RemovalError(str(problem)) from problem

    def _catch_up(self, repo: Any, job: Job) -> None:
        """Apply what the source has after the mirror's position."""
        with apply.locked(repo):
            tip = apply.tip_of(repo)
            empty = bootstrap.is_empty(repo)
        if empty:
            self._bootstrap(repo, job)
            tip = apply.tip_of(repo)
        lines = self._connected().log_after(job.source_path, tip.id)
        while some := list(itertools.islice(lines, RECORDS)):
            # The pushes are in the log of the primary, so its readers of now are theirs or newer.
            self._check_readers(job)
            for line in some:
                record = parse(line)
                if record.changesets:
                    self._fetched(repo, job, line, record)
                else:
                    apply.apply(repo, line, record, None)

    def _check_readers(self, job: Job) -> None:
        """Ask the source about the readers of pushes that came from it."""
        if self._gate is not None:
            self._gate.check(job.path)

    def _bootstrap(self, repo: Any, job: Job) -> None:
        """Fill an empty repository; the records after the state come one by one."""
        source = self._connected()
        state = source.state(job.source_path)
        if not state.id:
            return
        self._check_readers(job)
        lines = source.log_after(job.source_path, 0)
        if not state.heads:
            bootstrap.fill(repo, state, lines, None)
            return
        with source.changesets(job.source_path, Selection(heads=state.heads)) as data:
            bootstrap.fill(repo, state, lines, data)

    def _connected(self) -> Source:
        if self._source is None:
            raise UnavailableError("this host has no source to fetch from")
        return self._source

    def _open(self, path: str) -> Any:
        """Return an open repository; another one may have taken its place since."""
        found = self._opened.pop(path, None)
        if found is None or not found[1].is_there():
            place = self._root / path
            if not (place / ".hg").is_dir():
                raise MissingError(
                    f"{path} is not on this mirror; the registry's documents create it"
                )
            repo = apply.open_repository(place)
            found = (repo, OpenedPlace(repo.path))
        self._opened[path] = found
        while len(self._opened) > OPENED:
            del self._opened[next(iter(self._opened))]
        return found[0]


def reason_of(problem: BaseException) -> str:
    """Return the sentence of an error, with its class where it is not one of the service."""
    text = str(problem)
    if classify(problem) is Kind.POISON:
        text = f"{type(problem).__name__}: {text}"
    return text[:1000]

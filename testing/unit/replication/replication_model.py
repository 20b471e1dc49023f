"""A primary, a broker and a mirror in memory, around the relay's and the applier's own decisions.

The push logs are files. The relay's publisher and positions, the mirror's scheduler and its
decision about each record are the service's own. The broker keeps messages as JetStream does: each
id once, the last message of a subject known, each delivered until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Final

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of, parse
from hgfleet.replication.mirror.failures import Failure, Kind
from hgfleet.replication.mirror.jobs import Listed, Result, Task
from hgfleet.replication.mirror.places import Place
from hgfleet.replication.mirror.record_order import Step, decide
from hgfleet.replication.mirror.scheduler import Scheduler
from hgfleet.replication.primary.broker import BrokerError
from hgfleet.replication.primary.positions import Positions
from hgfleet.replication.primary.publisher import Publisher
from hgfleet.replication.primary.sessions import Sessions
from hgfleet.replication.protocol import messages, streams
from hgfleet.replication.protocol.streams import Streamed
from hgfleet.replication.repositories.group_sync import GroupSync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hgfleet.replication.mirror.jobs import Job

LARGE: Final = "a" * 1500
"""A bookmark's name that makes a record too large for a message."""

PAYLOAD: Final = 2048
"""Bytes of a message; the record of a push without a large name has some 600."""


def identity(repository: int) -> str:
    """Return the identity of a repository's push log."""
    return f"{repository + 1:032x}"


def path_of(repository: int) -> str:
    """Return the path of a repository."""
    return f"r{repository}"


class Primary:
    """Push logs in files, each line appended at once."""

    def __init__(self, folder: Path, repositories: int) -> None:
        self.folder = folder
        self.logs: dict[int, list[bytes]] = {number: [] for number in range(repositories)}
        for number in self.logs:
            self._store(number).mkdir(parents=True)

    def _store(self, repository: int) -> Path:
        return self.folder / path_of(repository) / ".hg/store"

    def push(self, repository: int, *, is_large: bool, user: str = "alice", epoch: int = 1) -> None:
        """Append a record."""
        log = self.logs[repository]
        record = Record(
            id=len(log) + 1,
            repository=identity(repository),
            kind="push",
            user=user,
            epoch=epoch,
            time=1,
            previous=hash_of(log[-1]) if log else FIRST,
            heads=Heads(digest=Heads.digest_of(())),
            bookmarks=((LARGE if is_large else "main", None, "ab" * 20),),
        )
        log.append(record.line())
        with (self._store(repository) / log_file.NAME).open("ab") as file:
            file.write(log[-1] + b"\n")

    def listing(self) -> list[Listed]:
        """Return the primary's answer to a mirror that compares itself."""
        return [
            Listed(identity(number), len(log), hash_of(log[-1]) if log else FIRST)
            for number, log in self.logs.items()
        ]


class Stream:
    """The stream of pushes, and the broker that the publisher sees.

    Each publication takes the next of `failures`: "refused" (not stored) or "unacknowledged"
    (stored, and the relay is not told).
    """

    max_payload = PAYLOAD
    has_objects = True
    guard = SimpleNamespace(epoch=1, fenced="")

    def __init__(self) -> None:
        self.messages: dict[int, tuple[str, bytes, dict[str, str]]] = {}
        self.failures: list[str] = []
        self.objects: dict[str, bytes] = {}
        self._made = itertools.count(1)
        self.renew()

    def renew(self) -> None:
        """Create the stream again, empty."""
        self.messages.clear()
        self.created, self.last_sequence = f"made {next(self._made)}", 0

    def lose_last(self, count: int) -> None:
        """Lose the last messages, as a broker that lost power does."""
        for sequence in sorted(self.messages)[-count:]:
            del self.messages[sequence]
        self.last_sequence = max(self.messages, default=0)

    @property
    def stream(self) -> SimpleNamespace:
        """Return the broker's description of the stream."""
        return SimpleNamespace(created=self.created, last_sequence=self.last_sequence)

    async def publish(
        self, _stream: str, subject: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bool]:
        """Store a message unless its id is there."""
        failure = self.failures.pop() if self.failures else ""
        if failure == "refused":
            raise BrokerError("the broker is away")
        known = {
            kept[2][messages.MESSAGE_ID_HEADER]: sequence
            for sequence, kept in self.messages.items()
        }
        sequence = known.get(headers[messages.MESSAGE_ID_HEADER])
        is_duplicate = sequence is not None
        if sequence is None:
            self.last_sequence = sequence = self.last_sequence + 1
            self.messages[sequence] = (subject, body, headers)
        if failure == "unacknowledged":
            raise BrokerError("the broker went away")
        return sequence, is_duplicate

    async def has_object(self, name: str) -> bool:
        """Whether an object of this name was stored."""
        return name in self.objects

    async def store(self, name: str, content: IO[bytes]) -> None:
        """Store an object."""
        self.objects[name] = content.read()

    async def streamed(self, repository: str, _stream: str = messages.PUSHES) -> Streamed | None:
        """Return the last push of a repository."""
        sent = [
            (sequence, headers)
            for sequence, (subject, _, headers) in self.messages.items()
            if subject == messages.pushes(repository)
        ]
        if not sent:
            return None
        sequence, headers = sent[-1]
        number, hash_ = streams.number_of(headers, repository), messages.hash_in(headers)
        assert number
        return Streamed(number, streams.epoch_of(headers), hash_, sequence)

    async def since(self, sequence: int) -> set[str]:
        """Return the repositories of the pushes behind a message."""
        return {
            subject.rpartition(".")[2]
            for number, (subject, _, _) in self.messages.items()
            if number > sequence
        }


class Relay:
    """The publisher of the service, from a primary to a stream."""

    def __init__(self, primary: Primary, stream: Stream, state: Path) -> None:
        self._primary, self._stream, self._state = primary, stream, state
        self.start()

    def start(self) -> None:
        """Begin with the files of a relay before."""
        self._state.mkdir(exist_ok=True)
        self._positions = Positions(self._state)
        self._connected = False

        async def no_changegroup(*_arguments: object) -> bytes:
            return b""

        broker: Any = self._stream
        changegroups: Any = SimpleNamespace(make=no_changegroup)
        paths = {identity(number): path_of(number) for number in self._primary.logs}
        served: Any = SimpleNamespace(place=paths.get)
        registry: Any = SimpleNamespace(read=lambda: "none")
        settings: Any = SimpleNamespace(
            repositories=self._primary.folder,
            terms=self._state,
            positions=self._state,
            objects_bytes=2**20,
        )
        self._publisher = Publisher(
            settings,
            self._positions,
            broker,
            changegroups,
            served,
            registry,
            Sessions(),
            GroupSync(None),
            lambda _path, _entry: None,
            lambda _entry: None,
            lambda _event, **_fields: None,
        )

    def kill(self, *, with_its_state: bool) -> None:
        """End the relay; its positions are lost with its disk."""
        self._positions.close()
        if with_its_state:
            for file in self._state.glob("positions*"):
                file.unlink()
        self.start()

    def disconnect(self) -> None:
        """Lose the connection; the next message needs a new connection."""
        self._connected = False

    def publish(self, repository: int) -> bool:
        """Publish a repository; return whether the broker took everything."""
        try:
            again = []
            if not self._connected:
                again = self._publisher.compare()
                again += asyncio.run(self._publisher.doubted())
            self._connected = True
            for message in [*again, identity(repository)]:
                asyncio.run(self._publisher.publish(message))
        except BrokerError:
            self.disconnect()
            return False
        return True


class Mirror:
    """Push logs of a mirror, which last, and its applier, which does not."""

    def __init__(self, primary: Primary, stream: Stream) -> None:
        self._primary, self._stream = primary, stream
        self.logs: dict[int, list[bytes]] = {number: [] for number in primary.logs}
        self.acknowledged: set[tuple[str, int]] = set()
        self.source_is_up = True
        self.now = 0.0
        self.start()

    def start(self) -> None:
        """Begin an applier: unacknowledged messages come again."""
        self.scheduler = Scheduler(can_repair=True)
        self.scheduler.here(self.places(), self.now)
        self.delivered: set[tuple[str, int]] = set()

    def places(self) -> Mapping[str, Place]:
        """Return where the repositories are, and how far."""
        return {
            identity(number): Place(path_of(number), self._tip(number))
            for number, log in self.logs.items()
            if log
        }

    def _tip(self, repository: int) -> Tip:
        log = self.logs[repository]
        return Tip(len(log), hash_of(log[-1]), identity(repository)) if log else Tip()

    def to_deliver(self) -> list[int]:
        """Return the numbers of messages that the broker has for this mirror."""
        return [
            sequence
            for sequence in sorted(self._stream.messages)
            if (self._stream.created, sequence) not in self.acknowledged | self.delivered
        ]

    def deliver(self, sequence: int) -> None:
        """Give the applier a message."""
        _, body, headers = self._stream.messages[sequence]
        handle = (self._stream.created, sequence)
        self.delivered.add(handle)
        try:
            message = messages.decode_push(headers, body)
        except messages.LargeRecordError as large:
            self.scheduler.announce(large.repository, large.number, self.now)
            self.acknowledged.add(handle)
        else:
            self.acknowledged.update(self.scheduler.offer(message, handle, self.now))

    def compare(self) -> None:
        """Compare all positions with the primary's."""
        places = self.places()
        handles = self.scheduler.compare(self._primary.listing(), places, self.now, self.now)
        self.acknowledged.update(handles)

    def work(self, fault: Kind | None = None, after: int = 0) -> bool:
        """Do a job, which a fault may end after some records; return whether there was any."""
        job = self.scheduler.next_job(self.now)
        if job is None:
            return False
        self.acknowledged.update(self._finished(job, self.run(job, fault, after)))
        return True

    def _finished(self, job: Job, result: Result) -> list[tuple[str, int]]:
        return self.scheduler.finished(job, result, self.now).acknowledge

    def run(self, job: Job, fault: Kind | None, after: int) -> Result:
        """Do a job as a worker does; each record that it applies lasts."""
        repository = int(job.identity, 16) - 1
        failure = None
        try:
            for count, line in enumerate(self._steps(job, repository)):
                if fault is not None and count >= after:
                    raise _FaultError(fault)
                self.logs[repository].append(line)
            if fault is not None:
                raise _FaultError(fault)
        except _FaultError as problem:
            failure = Failure(problem.kind, "made for the test")
        return Result(self._tip(repository), failure)

    def _steps(self, job: Job, repository: int) -> Iterator[bytes]:
        """Yield the lines to append."""
        if job.task is Task.REPAIR:
            self._need_source()
            self.logs[repository] = []
            return
        for line, _ in job.messages:
            step = self._step(repository, line)
            if step is Step.GAP:
                yield from self._from_source(repository)
                step = self._step(repository, line)
            if step is Step.APPLY:
                yield line
        if job.up_to_date:
            yield from self._from_source(repository)

    def _from_source(self, repository: int) -> Iterator[bytes]:
        self._need_source()
        yield from self._primary.logs[repository][len(self.logs[repository]) :]

    def _need_source(self) -> None:
        if not self.source_is_up:
            raise _FaultError(Kind.NETWORK)

    def _step(self, repository: int, line: bytes) -> Step:
        step, reason = decide(self._tip(repository), parse(line), line)
        if step is Step.DIVERGED:
            raise PushlogError(reason)
        return step


class _FaultError(Exception):
    """A fault of a job."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind

"""Which repository of a mirror is worked on next, and what follows from the result. Pure.

Pushes to one repository are applied in order and one job at a time, different repositories in
parallel. A message is acknowledged when the mirror shows its push, or when the repository is parked
or waits for the source: the primary's push log has it then. Times are of a monotonic clock, in
seconds.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.pushlog.log_file import Tip
from hgfleet.replication import failures
from hgfleet.replication.breaker import Breaker
from hgfleet.replication.failures import Action, Kind
from hgfleet.replication.jobs import Job, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hgfleet.replication.jobs import Place, Result
    from hgfleet.replication.messages import PushMessage

BATCH_MESSAGES: Final = 16
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of one job: a large one would keep a worker from other repositories."""

MOST_PENDING: Final = 64
"""Messages of one repository that wait; later ones come from the source."""

_OF_THE_HOST: Final = frozenset({Kind.HOST, Kind.CORRUPTION, Kind.POISON})
"""Kinds of failures that the breaker counts."""


@dataclass(slots=True)
class _Waiting:
    line: bytes
    changegroup: bytes
    handles: list[Any]
    stamp: str
    came_at: float


@dataclass(slots=True)
class _Entry:
    """A repository of the mirror, by the identity of its push log."""

    identity: str
    path: str
    source_path: str
    tip: int = 0
    newest: int = 0
    pending: dict[int, _Waiting] = field(default_factory=dict)
    behind: bool = False
    """The source has pushes that no message brings."""
    repair: bool = False
    busy: bool = False
    tries: int = 0
    retry_at: float = 0.0
    parked: str = ""
    sessions: dict[int, str] = field(default_factory=dict)
    """Of pushes that the mirror does not show yet, as far as their messages name them."""

    def has_work(self) -> bool:
        return not self.busy and bool(self.pending or self.behind or self.repair or self.parked)

    def note(self, number: int, session: str) -> None:
        if session and len(self.sessions) < MOST_PENDING:
            self.sessions[number] = session

    def take_sessions(self) -> dict[int, str]:
        """Return the sessions of pushes that the mirror shows now, and forget them."""
        shown = sorted(number for number in self.sessions if number <= self.tip)
        return {number: self.sessions.pop(number) for number in shown}


@dataclass(slots=True)
class Outcome:
    """What follows from the end of a job: messages to acknowledge, and what to tell."""

    acknowledge: list[Any] = field(default_factory=list)
    shown: int = 0
    """The last push that the mirror shows now, 0 if the job brought none."""
    parked: str = ""
    """Why the repository is parked since this job."""
    failed: Kind | None = None
    sessions: dict[int, str] = field(default_factory=dict)
    """Number to session, for log lines: of the pushes that are shown now."""
    blocked: int = 0
    """The push at which a job failed, as far as a message named it."""
    session: str = ""
    """That of the push at which a job failed."""


class Status(NamedTuple):
    """How far a mirror is: `parked` has reasons by path, each with the way out."""

    caught_up: bool
    waiting: int
    parked: dict[str, str]


class Scheduler:
    """Repositories and their work."""

    def __init__(self, *, can_repair: bool = False) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ready: dict[str, None] = {}
        self._later: list[tuple[float, str]] = []
        self._can_repair = can_repair
        self._source_until = 0.0
        self._source_tries = 0
        self._unreadable: dict[str, str] = {}
        self._documents_at = -math.inf
        self._for_readers: set[str] = set()
        """Repositories that wait for documents."""
        self.breaker = Breaker()
        self.compared = False
        """The positions of all repositories were compared with the primary's."""

    def offer(self, message: PushMessage, handle: Any, now: float) -> list[Any]:
        """Take a message that arrived; returns those to acknowledge at once."""
        record = message.record
        entry = self._entry(record.repository, message.path)
        if record.id > entry.newest:
            entry.newest, entry.source_path = record.id, message.path
        if entry.parked or record.id <= entry.tip:
            return [handle]
        entry.note(record.id, message.session)
        waiting = entry.pending.get(record.id)
        if waiting is not None:
            if waiting.line == message.line:
                # Delivered again: one acknowledgement is enough.
                waiting.handles[:] = [handle]
                return []
            # Two records of one number: the chain decides which one is the primary's.
            entry.behind = True
            return [handle]
        if len(entry.pending) >= MOST_PENDING:
            entry.behind = True
            return [handle]
        entry.pending[record.id] = _Waiting(
            message.line, message.changegroup, [handle], message.registry, now
        )
        self._wake(entry, now)
        return []

    def announce(
        self, identity: str, path: str, number: int, now: float, session: str = ""
    ) -> None:
        """Take a message that says that the source has a push, and does not bring it."""
        entry = self._entry(identity, path)
        if number > entry.tip and not entry.parked:
            entry.note(number, session)
            entry.behind = True
            self._wake(entry, now)

    def refuse(self, identity: str, reason: str) -> None:
        """Note that a message of a repository cannot be read."""
        entry = self._entries.get(identity)
        if entry is None:
            self._unreadable[identity] = reason
        elif not entry.parked:
            # The source's log has the same record; the job that reads it parks the repository.
            entry.behind = True
            self._wake(entry, 0.0)

    def brought(self, began: float, now: float) -> None:
        """Note that the documents of the primary were brought, in a run that began at that time."""
        self._documents_at = began
        for entry in [self._entries[identity] for identity in self._for_readers]:
            entry.retry_at = min(entry.retry_at, now)
            self._wake(entry, now)
        self._for_readers.clear()

    def here(self, places: Mapping[str, Place], now: float) -> None:
        """Take over which repositories are on the mirror: identity to path and end of the log."""
        for identity, place in places.items():
            entry = self._entry(identity, place.path)
            entry.path = place.path
            entry.tip = max(entry.tip, place.tip.id)
            if place.interrupted and not entry.parked:
                entry.behind = True
                self._wake(entry, now)

    def compare(
        self,
        listed: Iterable[tuple[str, str, int, str]],
        places: Mapping[str, Place],
        now: float,
    ) -> list[Any]:
        """Compare the primary's listing (path, identity, id, hash) with places that are older.

        Returns the handles of messages to acknowledge.
        """
        self.here(places, now)
        handles: list[Any] = []
        for path, identity, number, last_hash in listed:
            if not identity:
                continue
            entry = self._entry(identity, path)
            entry.source_path = path
            place = places.get(identity)
            tip = place.tip if place is not None else Tip()
            own = tip.id
            if own > number:
                reason = f"the mirror has record {own}, and the primary's last is {number}"
                handles += self._park(entry, reason, now)
            elif own == number and own and tip.hash != last_hash:
                reason = f"record {own} is {tip.hash[:12]} here and {last_hash[:12]} there"
                handles += self._park(entry, reason, now)
            elif number > max(own, entry.tip) and not entry.parked:
                entry.behind = True
                self._wake(entry, now)
        self.compared = True
        return handles

    def next_job(self, now: float) -> Job | None:
        """Choose a repository and begin work on it."""
        while self._later and self._later[0][0] <= now:
            entry = self._entries[heapq.heappop(self._later)[1]]
            if entry.retry_at <= now and entry.has_work():
                self._ready[entry.identity] = None
        if not self.breaker.may_start(now):
            return None
        while self._ready:
            identity = next(iter(self._ready))
            entry = self._entries[identity]
            del self._ready[identity]
            if not entry.has_work():
                continue
            needs_source = (entry.behind or entry.parked) and not entry.pending
            until = max(entry.retry_at, self._source_until if needs_source else 0.0)
            if until > now:
                heapq.heappush(self._later, (until, identity))
                continue
            entry.busy = True
            self.breaker.started()
            return self._job(entry)
        return None

    def next_time(self) -> float | None:
        """Return when `next_job` may have a job that it has not now."""
        times = [self._later[0][0]] if self._later else []
        if self.breaker.is_open and self._ready and not self.breaker.trying:
            times.append(self.breaker.until)
        return min(times) if times else None

    def finished(self, job: Job, result: Result, now: float) -> Outcome:
        """Take the result of a job."""
        entry = self._entries[job.identity]
        entry.busy = False
        outcome = Outcome()
        if result.tip.repository == entry.identity:
            if result.tip.id > entry.tip:
                outcome.shown = result.tip.id
                entry.tries = 0
            # Lower after a repair from a source that has less.
            entry.tip = result.tip.id
        outcome.sessions = entry.take_sessions()
        for number in [n for n in entry.pending if n <= entry.tip]:
            outcome.acknowledge += entry.pending.pop(number).handles
        failure = result.failure
        if failure is None:
            # Also the records of a former primary, which were passed over.
            done = {line for line, _ in job.messages}
            for number in [n for n, one in entry.pending.items() if one.line in done]:
                outcome.acknowledge += entry.pending.pop(number).handles
                entry.sessions.pop(number, None)
            self._succeeded(entry, job)
        else:
            outcome.failed = failure.kind
            outcome.blocked = min(entry.pending, default=0)
            outcome.session = entry.sessions.get(outcome.blocked, "")
            entry.tries += 1
            if failure.kind in _OF_THE_HOST:
                self.breaker.failure(entry.identity, now)
            else:
                self.breaker.trying = False
            self._failed(entry, failure, outcome, now)
        self._wake(entry, now)
        return outcome

    def _succeeded(self, entry: _Entry, job: Job) -> None:
        self.breaker.succeeded()
        entry.tries, entry.retry_at, entry.parked = 0, 0.0, ""
        if job.up_to_date:
            entry.behind = False
            self._source_until, self._source_tries = 0.0, 0
        if job.task is Task.REPAIR:
            entry.repair, entry.behind = False, True

    def _failed(
        self, entry: _Entry, failure: failures.Failure, outcome: Outcome, now: float
    ) -> None:
        follows = failures.action(failure.kind, entry.tries, can_repair=self._can_repair)
        if follows is Action.PARK:
            outcome.parked = "" if entry.parked else failure.reason
            outcome.acknowledge += self._park(entry, failure.reason, now)
            return
        if failure.kind is Kind.READERS:
            self._for_readers.add(entry.identity)
        entry.repair = entry.repair or follows is Action.REPAIR
        entry.retry_at = now + failures.delay(failure.kind, entry.tries)
        if failure.kind is Kind.NETWORK:
            self._source_tries += 1
            self._source_until = now + failures.delay(Kind.NETWORK, self._source_tries)
            # What the messages bring may still be applied; the gap before it may not.
            entry.behind = True

    def _park(self, entry: _Entry, reason: str, now: float) -> list[Any]:
        """Leave a repository alone until a repair; returns the handles of its messages."""
        entry.parked, entry.behind, entry.repair = reason, False, False
        entry.retry_at = now + failures.PARKED_SECONDS
        handles = [handle for waiting in entry.pending.values() for handle in waiting.handles]
        entry.pending.clear()
        self._ready.pop(entry.identity, None)
        heapq.heappush(self._later, (entry.retry_at, entry.identity))
        return handles

    def _entry(self, identity: str, path: str) -> _Entry:
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries[identity] = _Entry(identity, path, path)
            if self._unreadable.pop(identity, ""):
                entry.behind = True
        return entry

    def _wake(self, entry: _Entry, now: float) -> None:
        if not entry.has_work():
            return
        if entry.retry_at > now:
            heapq.heappush(self._later, (entry.retry_at, entry.identity))
        else:
            self._ready[entry.identity] = None

    def _job(self, entry: _Entry) -> Job:
        if entry.repair:
            return Job(entry.identity, entry.path, entry.source_path, task=Task.REPAIR)
        messages: list[tuple[bytes, bytes]] = []
        stamps: set[str] = set()
        size = 0
        for number in sorted(entry.pending)[:BATCH_MESSAGES]:
            waiting = entry.pending[number]
            size += len(waiting.line) + len(waiting.changegroup)
            if messages and size > BATCH_BYTES:
                break
            messages.append((waiting.line, waiting.changegroup))
            if waiting.came_at >= self._documents_at:
                stamps.add(waiting.stamp)
        return Job(
            entry.identity,
            entry.path,
            entry.source_path,
            tuple(messages),
            up_to_date=not messages and (entry.behind or bool(entry.parked)),
            stamps=frozenset(stamps),
        )

    def status(self) -> Status:
        """Count and name what is left to do, in one pass over all repositories."""
        waiting, behind, parked = 0, False, {}
        for entry in self._entries.values():
            if entry.parked:
                parked[entry.path] = f"{entry.parked}; hgfleet replication resync {entry.path}"
            elif entry.pending or entry.behind:
                waiting += len(entry.pending)
                behind = behind or entry.behind
        for identity, reason in self._unreadable.items():
            parked[identity] = f"{reason}; update this mirror's release"
        return Status(self.compared and not behind, waiting, parked)

    @property
    def waiting(self) -> int:
        """How many pushes arrived and are not applied."""
        return self.status().waiting

    @property
    def caught_up(self) -> bool:
        """Whether the mirror shows what the primary had at the last comparison."""
        return self.status().caught_up

    @property
    def repositories(self) -> int:
        """How many repositories are known."""
        return len(self._entries)

    def shown(self, identity: str) -> int:
        """Return the last push of a repository that the mirror shows."""
        entry = self._entries.get(identity)
        return entry.tip if entry is not None else 0

    def parked(self) -> dict[str, str]:
        """Return why repositories are parked, by their paths, with the way out."""
        return self.status().parked

"""State of one repository of a mirror: current, waiting until a time, or parked. Pure.

A repository is current when the mirror shows every push that it has heard of. Otherwise it waits:
for a worker, or after a failure until a time. A failure of its own that does not end parks it.
Times are of a monotonic clock, in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.replication import failures
from hgfleet.replication.jobs import Job, Task

if TYPE_CHECKING:
    from hgfleet.pushlog.log_file import Tip
    from hgfleet.replication.failures import Kind
    from hgfleet.replication.messages import PushMessage

BATCH_MESSAGES: Final = 16
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of one job: a large one would keep a worker from other repositories."""

MOST_PENDING: Final = 64
"""Messages of one repository that wait; later ones come from the source."""


@dataclass(slots=True)
class Waiting:
    """A push that arrived, and is not applied."""

    line: bytes
    changegroup: bytes
    handles: list[Any]
    stamp: str
    came_at: float


@dataclass(slots=True)
class RepositoryState:
    """A repository, by its identity."""

    identity: str
    tip: int = 0
    hash: str = ""
    """Of the record at the tip, where a job or a look at the disk has told it."""
    epoch: int = 1
    """Of that record."""
    pending: dict[int, Waiting] = field(default_factory=dict)
    asks_since: float | None = None
    """Since when the source has pushes that no message brings; the source is asked for them."""
    repair: bool = False
    busy: bool = False
    ended_at: float = -math.inf
    """When its last job ended: what was read from the disk before is older."""
    tries: int = 0
    """Failures in a row."""
    failed_at: float = math.inf
    """When the first of them was."""
    until: float = 0.0
    """Nothing is tried before."""
    reason: str = ""
    """Of the last failure."""
    is_parked: bool = False
    is_served: bool = True
    """Whether readers get it while it is parked: no push is known to be missing."""
    sessions: dict[int, str] = field(default_factory=dict)
    """Of pushes that the mirror does not show yet, as far as their messages name them."""

    def has_work(self) -> bool:
        """Whether a worker is to do something."""
        return not self.busy and (self.is_behind() or self.is_parked)

    def is_behind(self) -> bool:
        """Whether the mirror has heard of pushes that it does not show."""
        return bool(self.pending or self.asks_since is not None or self.repair)

    def needs_source(self) -> bool:
        """Whether there is nothing to do without the source."""
        return (self.asks_since is not None or self.is_parked) and not self.pending

    def is_late(self, now: float) -> bool:
        """Whether it is behind for longer than readers are to see it.

        A push that is being applied is not late, however large it is; pushes that the mirror may
        have missed since an unknown time are late at once.
        """
        if self.is_parked or not self.is_behind():
            return False
        if self.asks_since == -math.inf:
            return True
        since = [waiting.came_at for waiting in self.pending.values()]
        if self.asks_since is not None:
            since.append(self.asks_since)
        if self.repair:
            since.append(self.failed_at)
        return not self.busy and min(since) < now - failures.LATE_SECONDS

    def shows(self, message: PushMessage) -> bool:
        """Whether the mirror shows this push, by its number and epoch, at the tip by its hash too.

        Another push of the number of the last one goes to the job, which compares the chains. So
        does one of a later epoch than the tip: epochs never fall within a chain, so the mirror has
        pushes that were given up.
        """
        record = message.record
        if record.id >= self.tip:
            return record.id == self.tip and self.hash in ("", message.hash)
        return not self.hash or record.epoch <= self.epoch

    def move(self, tip: Tip) -> None:
        """Take over the end of the mirror's push log."""
        self.tip, self.hash, self.epoch = tip.id, tip.hash, tip.epoch

    def may_go_on(self) -> bool:
        """Whether pushes that come are to be applied; one that was parked as current goes on."""
        if self.is_parked and self.is_served:
            self.is_parked, self.tries, self.until, self.reason = False, 0, 0.0, ""
        return not self.is_parked

    def ask(self, since: float) -> None:
        """Note that the source is to be asked for pushes."""
        self.asks_since = since if self.asks_since is None else min(since, self.asks_since)

    def note_session(self, number: int, session: str) -> None:
        """Note the session of a push, for log lines."""
        if session and len(self.sessions) < MOST_PENDING:
            self.sessions[number] = session

    def take_sessions(self) -> dict[int, str]:
        """Return the sessions of pushes that the mirror shows now, and forget them."""
        shown = sorted(number for number in self.sessions if number <= self.tip)
        return {number: self.sessions.pop(number) for number in shown}

    def take_shown(self) -> list[Any]:
        """Return the handles of messages whose pushes the mirror shows, and forget them."""
        shown = [number for number in self.pending if number <= self.tip]
        return [handle for number in shown for handle in self.pending.pop(number).handles]

    def succeeded(self, job: Job, now: float) -> None:
        """Note that a job ended without a failure."""
        self.tries, self.failed_at, self.until, self.reason = 0, math.inf, 0.0, ""
        self.is_parked, self.is_served = False, True
        if job.up_to_date:
            self.asks_since = None
        if job.task is Task.REPAIR:
            self.repair = False
            self.ask(now)

    def failed(self, reason: str, now: float) -> None:
        """Note that a job failed."""
        self.tries += 1
        self.failed_at = min(self.failed_at, now)
        self.reason = reason

    def park(self, reason: str, until: float, *, is_served: bool = False) -> list[Any]:
        """Leave the repository alone until a time; returns the handles of its messages."""
        self.is_parked, self.is_served = True, is_served
        self.reason, self.until = reason, until
        self.asks_since, self.repair = None, False
        return self.take_all()

    def take_all(self) -> list[Any]:
        """Return the handles of all messages, and forget them."""
        handles = [handle for waiting in self.pending.values() for handle in waiting.handles]
        self.pending.clear()
        return handles

    def job(self, readers_at: float) -> Job:
        """Return the next job; a push that came before the registry of that time needs no stamp."""
        if self.repair:
            return Job(self.identity, task=Task.REPAIR)
        messages: list[tuple[bytes, bytes]] = []
        stamps: set[str] = set()
        size = 0
        for number in sorted(self.pending)[:BATCH_MESSAGES]:
            waiting = self.pending[number]
            size += len(waiting.line) + len(waiting.changegroup)
            if messages and size > BATCH_BYTES:
                break
            messages.append((waiting.line, waiting.changegroup))
            if waiting.came_at >= readers_at:
                stamps.add(waiting.stamp)
        return Job(
            self.identity,
            tuple(messages),
            up_to_date=not messages,
            stamps=frozenset(stamps),
        )


def parked_until(kind: Kind, now: float) -> float:
    """Return when a repository that a failure parks is tried again."""
    return now + failures.parked_seconds(kind)


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
    """How far a mirror is; repositories are named by their identities."""

    caught_up: bool
    """The mirror has compared since its last connection, and no repository is late."""
    waiting: int
    """Pushes that arrived and are not applied."""
    parked: dict[str, str]
    """With the reason."""
    waits: dict[str, str]
    """Repositories that wait after a failure, with its reason."""
    unserved: frozenset[str]
    """Parked repositories that miss pushes, or have others than the primary."""
    behind: int = 0
    """Repositories that do not show all pushes, parked ones apart."""

"""State of one repository of a mirror: current, waiting until a time, or parked. Pure.

A repository is current when the mirror shows every push that it has heard of. Otherwise it waits:
for a worker, or after a failure until a time. A failure of its own that does not end parks it.
Times are of a monotonic clock, in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.replication.mirror import failures
from hgfleet.replication.mirror.failures import Kind
from hgfleet.replication.mirror.jobs import Job, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hgfleet.pushlog.log_file import Tip
    from hgfleet.replication.mirror.jobs import Listed
    from hgfleet.replication.mirror.places import Place
    from hgfleet.replication.protocol.messages import PushMessage

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
    differs: bool = False
    """It is parked as another chain than the primary's; a job that changes nothing keeps that."""
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
            self._end_parking()
        return not self.is_parked

    def agrees(self) -> None:
        """Note that a comparison found the primary's last push at the tip."""
        if self.differs:
            self._end_parking()

    def _end_parking(self) -> None:
        self.is_parked, self.is_served, self.differs = False, True, False
        self.tries, self.failed_at, self.until, self.reason = 0, math.inf, 0.0, ""

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

    def succeeded(self, job: Job, now: float, *, moved: bool) -> bool:
        """Note that a job ended without a failure; `moved`: the tip is another record since.

        Return whether a comparison has to say that the repository is the primary's: the source had
        nothing after the tip, which it does not have itself.
        """
        if job.up_to_date:
            self.asks_since = None
        came = job.task is Task.REPAIR or (job.up_to_date and moved)
        if self.differs and not came:
            self.tries, self.failed_at = 0, math.inf
            self.until = now + failures.parked_seconds(Kind.DIVERGED)
            return True
        self._end_parking()
        if job.task is Task.REPAIR:
            self.repair = False
            self.ask(now)
        return False

    def failed(self, reason: str, now: float) -> None:
        """Note that a job failed."""
        self.tries += 1
        self.failed_at = min(self.failed_at, now)
        self.reason = reason

    def park(
        self, reason: str, until: float, *, is_served: bool = False, differs: bool = False
    ) -> list[Any]:
        """Leave the repository alone until a time; returns the handles of its messages."""
        self.is_parked, self.is_served = True, is_served
        self.differs = self.differs or differs
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


class Difference(NamedTuple):
    """Why the repository of a mirror is not a beginning of the primary's."""

    reason: str
    is_ahead: bool
    """It has all pushes of the primary, and more: those that the primary lost."""


def difference(listed: Listed, place: Place) -> Difference | None:
    """Compare a place with the primary's listing, which is newer."""
    own, tip = place.tip.id, place.tip
    if own > listed.id and place.is_other:
        reason = f"record {listed.id} is another one here than there, and the mirror has {own}"
        return Difference(reason, is_ahead=False)
    if own > listed.id:
        reason = f"the mirror has record {own}, and the primary's last is {listed.id}"
        return Difference(reason, is_ahead=True)
    if own == listed.id and own and tip.hash != listed.hash:
        reason = f"record {own} is {tip.hash[:12]} here and {listed.hash[:12]} there"
        return Difference(reason, is_ahead=False)
    return None


def is_same(listed: Listed, place: Place) -> bool:
    """Whether a place has the primary's last push at its tip."""
    is_there = bool(place.path) and not listed.problem and place.tip.id == listed.id
    return is_there and difference(listed, place) is None


@dataclass(slots=True)
class Outcome:
    """What follows from the end of a job: messages to acknowledge, and what to tell."""

    acknowledge: list[Any] = field(default_factory=list)
    shown: int = 0
    """The last push that the mirror shows now, 0 if the job brought none."""
    parked: str = ""
    """Why the repository is parked since this job."""
    compare: bool = False
    """Only a comparison with the primary says whether the repository is to be parked."""
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


def status_of(
    entries: Iterable[RepositoryState], unreadable: Mapping[str, str], now: float, *, compared: bool
) -> Status:
    """Count and name what is left to do, in one pass over all repositories.

    `unreadable` are those that are known by messages only, which this release cannot read, and why.
    """
    waiting, behind, is_late = 0, 0, False
    parked: dict[str, str] = {}
    waits: dict[str, str] = {}
    unserved = set()
    for entry in entries:
        if entry.is_parked:
            parked[entry.identity] = entry.reason
            if not entry.is_served:
                unserved.add(entry.identity)
        elif entry.is_behind():
            waiting += len(entry.pending)
            behind += 1
            is_late = is_late or entry.is_late(now)
            if entry.reason:
                waits[entry.identity] = entry.reason
    for identity, reason in unreadable.items():
        parked[identity] = f"{reason}; update this mirror's release"
    return Status(compared and not is_late, waiting, parked, waits, frozenset(unserved), behind)

"""State of a repository on a mirror: current, waiting until a time, or parked. Pure.

A repository is current when the mirror shows every push that it has heard of. Otherwise it waits:
for a worker, or after a failure until a time. If its own failure persists, it is parked.
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
"""Limits of a job: a large job would keep a worker from other repositories."""

MOST_PENDING: Final = 64
"""Messages of a repository that may wait; later pushes come from the source."""


@dataclass(slots=True)
class Waiting:
    """A push that has arrived, and is not applied yet."""

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
    """Hash of the record at the tip, if a job or the disk has shown it."""
    epoch: int = 1
    """Epoch of that record."""
    pending: dict[int, Waiting] = field(default_factory=dict)
    asks_since: float | None = None
    """Since when pushes have to be fetched from the source, because no message brings them."""
    repair: bool = False
    busy: bool = False
    ended_at: float = -math.inf
    """When its last job ended: anything read from the disk before is older."""
    tries: int = 0
    """Failures in a row."""
    failed_at: float = math.inf
    """When the first of these failures was."""
    until: float = 0.0
    """Time before which nothing is tried."""
    reason: str = ""
    """Reason of the last failure."""
    is_parked: bool = False
    is_served: bool = True
    """Whether readers may read it while it is parked: no push is known to be missing."""
    differs: bool = False
    """Whether it is parked for a chain unlike the primary's; a job without changes keeps this."""
    sessions: dict[int, str] = field(default_factory=dict)
    """Sessions of pushes that the mirror does not show yet, as far as messages name them."""

    def has_work(self) -> bool:
        """Whether there is work for a worker."""
        return not self.busy and (self.is_behind() or self.is_parked)

    def is_behind(self) -> bool:
        """Whether the mirror has heard of pushes that it does not show."""
        return bool(self.pending or self.asks_since is not None or self.repair)

    def needs_source(self) -> bool:
        """Whether all of the work needs the source."""
        return (self.asks_since is not None or self.is_parked) and not self.pending

    def is_late(self, now: float) -> bool:
        """Whether it is behind for longer than readers should see.

        A push that is being applied is not late, however large it is. If the mirror may have missed
        pushes since an unknown time, it is late at once.
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
        """Whether the mirror shows this push, by its number and epoch, at the tip also by its hash.

        A different push with the number of the last push goes to the job, which compares the
        chains. So does a push of a later epoch than the tip: epochs never fall within a chain, so
        the mirror has pushes that were given up.
        """
        record = message.record
        if record.id >= self.tip:
            return record.id == self.tip and self.hash in ("", message.hash)
        return not self.hash or record.epoch <= self.epoch

    def move(self, tip: Tip) -> None:
        """Take over the end of the mirror's push log."""
        self.tip, self.hash, self.epoch = tip.id, tip.hash, tip.epoch

    def may_go_on(self) -> bool:
        """Whether arriving pushes are applied; a repository that was parked as current resumes."""
        if self.is_parked and self.is_served:
            self._end_parking()
        return not self.is_parked

    def agrees(self) -> None:
        """Record that a comparison found the primary's last push at the tip."""
        if self.differs:
            self._end_parking()

    def _end_parking(self) -> None:
        self.is_parked, self.is_served, self.differs = False, True, False
        self.tries, self.failed_at, self.until, self.reason = 0, math.inf, 0.0, ""

    def ask(self, since: float) -> None:
        """Record that pushes have to be fetched from the source."""
        self.asks_since = since if self.asks_since is None else min(since, self.asks_since)

    def note_session(self, number: int, session: str) -> None:
        """Record the session of a push, for log lines."""
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
        """Record that a job ended without a failure; `moved` says whether the tip changed.

        Return whether only a comparison can show that the repository has the primary's chain: the
        source had no record after the tip, perhaps because it does not have the tip either.
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
        """Record that a job failed."""
        self.tries += 1
        self.failed_at = min(self.failed_at, now)
        self.reason = reason

    def park(
        self, reason: str, until: float, *, is_served: bool = False, differs: bool = False
    ) -> list[Any]:
        """Do no work on the repository until a time; return the handles of its messages."""
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
    """Why a mirror's chain of a repository is not a beginning of the primary's chain."""

    reason: str
    is_ahead: bool
    """Whether it has all pushes of the primary, and also pushes that the primary lost."""


def difference(listed: Listed, place: Place) -> Difference | None:
    """Compare a place with the primary's listing, which is newer."""
    own, tip = place.tip.id, place.tip
    if own > listed.id and place.is_other:
        reason = f"record {listed.id} differs from the primary's, and the mirror has {own} records"
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
    """Consequences of the end of a job: messages to acknowledge, and facts to report."""

    acknowledge: list[Any] = field(default_factory=list)
    shown: int = 0
    """The last push that the mirror shows now; 0 if the job brought none."""
    parked: str = ""
    """Why the repository is parked since this job; "" if it is not."""
    compare: bool = False
    """Whether a comparison with the primary has to decide about parking the repository."""
    failed: Kind | None = None
    sessions: dict[int, str] = field(default_factory=dict)
    """Session by number of the pushes that are shown now, for log lines."""
    blocked: int = 0
    """The push at which a job failed, as far as a message named it."""
    session: str = ""
    """The session of the push at which a job failed."""


class Status(NamedTuple):
    """Progress of a mirror; repositories are named by their identities."""

    caught_up: bool
    """The mirror has compared since its last connection, and no repository is late."""
    waiting: int
    """Pushes that arrived and are not applied."""
    parked: dict[str, str]
    """Parked repositories, with the reason."""
    waits: dict[str, str]
    """Repositories that wait after a failure, with its reason."""
    unserved: frozenset[str]
    """Parked repositories that miss pushes, or have other pushes than the primary."""
    behind: int = 0
    """Repositories, except parked, that do not show all pushes."""


def status_of(
    entries: Iterable[RepositoryState], unreadable: Mapping[str, str], now: float, *, compared: bool
) -> Status:
    """Return the remaining work, after one pass over all repositories.

    `unreadable` has repositories that are only known by messages that this release cannot read,
    with the reason.
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

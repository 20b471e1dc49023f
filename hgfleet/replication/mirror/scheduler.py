"""Choice of the repository that a mirror works on next, and consequences of results. Pure.

Pushes to the same repository are applied in order, one job at a time; different repositories in
parallel. A message is acknowledged when the mirror shows its push, or when the repository is parked
or waits for the source: then the primary's push log has the push. Times are of a monotonic clock,
in seconds.

A repository is named by its identity. The worker looks up its path when a job runs.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any, Final

from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.mirror import failures
from hgfleet.replication.mirror.breaker import Breaker
from hgfleet.replication.mirror.failures import Action, Kind
from hgfleet.replication.mirror.places import Place
from hgfleet.replication.mirror.repository_state import (
    MOST_PENDING,
    Outcome,
    RepositoryState,
    Status,
    Waiting,
    difference,
    is_same,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hgfleet.replication.mirror.failures import Failure
    from hgfleet.replication.mirror.jobs import Job, Listed, Result
    from hgfleet.replication.protocol.messages import PushMessage

_OF_THE_HOST: Final = frozenset({Kind.HOST, Kind.CORRUPTION, Kind.POISON})
"""Kinds of failures that the breaker counts."""

_FOR_DOCUMENTS: Final = frozenset({Kind.READERS, Kind.MISSING})
"""Kinds of failures that the primary's documents may end."""


class Scheduler:
    """Repositories and their work."""

    def __init__(self, *, can_repair: bool = False) -> None:
        self._entries: dict[str, RepositoryState] = {}
        self._ready: dict[str, None] = {}
        self._later: list[tuple[float, str]] = []
        self._can_repair = can_repair
        self._source_until = 0.0
        self._source_tries = 0
        self._unreadable: dict[str, str] = {}
        self._purged: Collection[str] = frozenset()
        self._documents_at = self._readers_at = -math.inf
        self._for_documents: set[str] = set()
        self._missed_since = -math.inf
        self.breaker = Breaker()
        self.source_problem = ""
        """Why the source does not answer; this concerns the whole host."""
        self.compared = False
        """Whether the positions of all repositories were compared since the last connection."""

    def connected(self, heard_at: float) -> None:
        """Record a new connection; up to `heard_at` the mirror missed nothing, -inf if unknown."""
        self.compared, self._missed_since = False, heard_at

    def offer(self, message: PushMessage, handle: Any, now: float) -> list[Any]:
        """Take a message that arrived; return the messages to acknowledge at once."""
        record = message.record
        if record.repository in self._purged:
            return [handle]
        entry = self._entry(record.repository, now)
        if entry.shows(message) or not entry.may_go_on():
            return [handle]
        entry.note_session(record.id, message.session)
        waiting = entry.pending.get(record.id)
        if waiting is not None:
            if waiting.line == message.line:
                # Delivered again: one acknowledgement is enough.
                waiting.handles[:] = [handle]
                return []
            # Two records have the same number: the chain decides which is the primary's record.
            entry.ask(now)
            return [handle]
        if len(entry.pending) >= MOST_PENDING:
            entry.ask(now)
            return [handle]
        entry.pending[record.id] = Waiting(
            message.line, message.changegroup, [handle], message.registry, now
        )
        self._wake(entry, now)
        return []

    def announce(
        self, identity: str, number: int, now: float, session: str = "", hash_: str = ""
    ) -> None:
        """Take a message that announces a push at the source without its content."""
        if identity in self._purged:
            return
        entry = self._entry(identity, now)
        is_other = number == entry.tip and "" not in (hash_, entry.hash) and hash_ != entry.hash
        if (number <= entry.tip and not is_other) or not entry.may_go_on():
            return
        entry.note_session(number, session)
        entry.ask(now)
        self._wake(entry, now)

    def refuse(self, identity: str, reason: str, now: float) -> None:
        """Record that a message of a repository cannot be read."""
        entry = self._entries.get(identity)
        if entry is None:
            if identity not in self._purged:
                self._unreadable[identity] = reason
        elif not entry.is_parked:
            # The source's log has the same record; the job that reads it parks the repository.
            entry.ask(now)
            self._wake(entry, now)

    def brought(self, began: float, now: float, *, registry: bool = True) -> None:
        """Record that the documents of the primary were fetched, in a run that began at that time.

        If this mirror refused the registry (not `registry`), pushes still wait for their readers.
        """
        self._documents_at = began
        if registry:
            self._readers_at = began
        for identity in self._for_documents:
            if (entry := self._entries.get(identity)) is not None:
                entry.until = min(entry.until, now)
                self._wake(entry, now)
        self._for_documents.clear()

    def purge(self, purged: Collection[str]) -> list[Any]:
        """Forget deleted repositories, now and when messages come; returns their messages."""
        self._purged = purged
        handles: list[Any] = []
        for identity in [known for known in self._entries if known in purged]:
            handles += self._entries.pop(identity).take_all()
        for identity in [known for known in self._unreadable if known in purged]:
            del self._unreadable[identity]
        return handles

    def here(self, places: Mapping[str, Place], now: float) -> None:
        """Take over the ends of the push logs on the mirror."""
        for identity, place in places.items():
            if not (place.tip.id or place.interrupted):
                continue
            entry = self._entry(identity, now)
            if place.tip.id >= entry.tip:
                entry.move(place.tip)
            if place.interrupted and not entry.is_parked and not entry.busy:
                entry.ask(now)
                self._wake(entry, now)

    def compare(
        self, listed: Iterable[Listed], places: Mapping[str, Place], began: float, now: float
    ) -> list[Any]:
        """Compare the primary's listing with places, which are older; both were read after `began`.

        Return the handles of messages to acknowledge.
        """
        self.here(places, now)
        since = now if self.compared else self._missed_since
        handles: list[Any] = []
        known = set()
        for remote in listed:
            known.add(remote.identity)
            if remote.identity in self._purged:
                continue
            place = places.get(remote.identity) or Place("", Tip())
            entry = self._entry(remote.identity, now)
            is_at_rest = not entry.busy and entry.ended_at < began
            if is_at_rest and place.tip.id < entry.tip:
                # Another process set its folder back, or removed it.
                entry.move(place.tip)
            if is_at_rest and is_same(remote, place):
                entry.agrees()
            handles += self._compare(remote, entry, place, since, now)
        for identity in self._entries.keys() - known:
            handles += self._not_in_service(self._entries[identity], began)
        for identity in self._unreadable.keys() - known:
            del self._unreadable[identity]
        self.compared = True
        return handles

    def _compare(
        self, remote: Listed, entry: RepositoryState, place: Place, since: float, now: float
    ) -> list[Any]:
        # Trouble of the primary does not change whether readers may read the repository here.
        is_served = entry.is_served
        if remote.problem:
            if entry.busy or entry.is_behind():
                return []
            reason = f"the primary cannot read it: {remote.problem}"
            return self._park(entry, Kind.REFUSED, reason, now, is_served=is_served)
        if (differing := difference(remote, place)) is not None:
            is_served = is_served and differing.is_ahead
            return self._park(entry, Kind.DIVERGED, differing.reason, now, is_served=is_served)
        known = max(place.tip.id, entry.tip, *entry.pending)
        if remote.id > known and entry.may_go_on():
            entry.ask(since)
            self._wake(entry, now)
        return []

    def _not_in_service(self, entry: RepositoryState, began: float) -> list[Any]:
        """Stop work on a repository that the primary does not list: it is archived or deleted.

        But if a message came since the listing, the repository may have been created since.
        """
        if entry.busy or any(push.came_at >= began for push in entry.pending.values()):
            return []
        handles = entry.take_all()
        if entry.tip:
            self._entries[entry.identity] = RepositoryState(
                entry.identity, entry.tip, entry.hash, entry.epoch
            )
        else:
            del self._entries[entry.identity]
        return handles

    def next_job(self, now: float) -> Job | None:
        """Choose a repository and begin work on it."""
        while self._later and self._later[0][0] <= now:
            entry = self._entries.get(heapq.heappop(self._later)[1])
            if entry is not None and entry.until <= now and entry.has_work():
                self._ready[entry.identity] = None
        if not self.breaker.may_start(now):
            return None
        while self._ready:
            identity = next(iter(self._ready))
            del self._ready[identity]
            entry = self._entries.get(identity)
            if entry is None or not entry.has_work():
                continue
            until = max(entry.until, self._source_until if entry.needs_source() else 0.0)
            if until > now:
                heapq.heappush(self._later, (until, identity))
                continue
            entry.busy = True
            self.breaker.started()
            return entry.job(self._readers_at)
        return None

    def next_time(self) -> float | None:
        """Return when `next_job` may have a job that it does not have now."""
        times = [self._later[0][0]] if self._later else []
        if self.breaker.is_open and self._ready and not self.breaker.trying:
            times.append(self.breaker.until)
        return min(times) if times else None

    def finished(self, job: Job, result: Result, now: float) -> Outcome:
        """Take the result of a job.

        The end of the mirror's log counts first, because a job that failed may have applied some
        pushes before. Messages of pushes that the mirror now shows are acknowledged. After a job
        without a failure, so are its other messages. After a failure, its kind decides what
        follows (`_failed`): a later try, a repair, or parking.
        """
        outcome = Outcome()
        entry = self._entries.get(job.identity)
        if entry is None:
            # It was purged during the job.
            self.breaker.trying = False
            return outcome
        entry.busy, entry.ended_at = False, now
        before = entry.tip, entry.hash
        if result.tip.repository == entry.identity:
            if result.tip.id > entry.tip:
                outcome.shown = result.tip.id
                entry.tries, entry.failed_at = 0, math.inf
            # The tip may go down, after a repair from a source that has less.
            entry.move(result.tip)
        outcome.sessions = entry.take_sessions()
        outcome.acknowledge += entry.take_shown()
        failure = result.failure
        if failure is None:
            # This includes records of a former primary, which were passed over.
            done = {line for line, _ in job.messages}
            for number in [n for n, push in entry.pending.items() if push.line in done]:
                outcome.acknowledge += entry.pending.pop(number).handles
                entry.sessions.pop(number, None)
            self.breaker.succeeded()
            moved = (entry.tip, entry.hash) != before
            outcome.compare = entry.succeeded(job, now, moved=moved)
            if job.up_to_date:
                self.source_answered()
        else:
            outcome.failed = failure.kind
            outcome.blocked = min(entry.pending, default=0)
            outcome.session = entry.sessions.get(outcome.blocked, "")
            entry.failed(failure.reason, now)
            self._failed(entry, failure, outcome, now)
        self._wake(entry, now)
        return outcome

    def _failed(
        self, entry: RepositoryState, failure: Failure, outcome: Outcome, now: float
    ) -> None:
        kind = failure.kind
        if kind in _OF_THE_HOST:
            self.breaker.failure(entry.identity, now)
        else:
            self.breaker.trying = False
        if kind is Kind.REFUSED:
            self.source_answered()
        if kind in _FOR_DOCUMENTS:
            self._for_documents.add(entry.identity)
        follows = failures.action(kind, entry.tries, can_repair=self._can_repair)
        if follows is Action.PARK and not self._is_of_the_host(entry, kind):
            outcome.parked = "" if entry.is_parked else failure.reason
            # If its folder is missing, it may have left the service of the primary.
            outcome.compare = bool(outcome.parked) and kind is Kind.MISSING
            is_served = entry.is_served and entry.is_parked and kind is not Kind.DIVERGED
            outcome.acknowledge += self._park(entry, kind, failure.reason, now, is_served=is_served)
            return
        entry.repair = entry.repair or follows is Action.REPAIR
        entry.until = now + failures.delay(kind, entry.tries)
        if kind is Kind.NETWORK:
            self._source_tries += 1
            self._source_until = now + failures.delay(Kind.NETWORK, self._source_tries)
            self.source_problem = failure.reason
        if kind in (Kind.NETWORK, Kind.REFUSED) and not entry.is_parked:
            # Pushes with a message may still be applied, but not the gap before them.
            entry.ask(now)

    def _is_of_the_host(self, entry: RepositoryState, kind: Kind) -> bool:
        """Whether the host or its documents, and not this repository, cause a failure."""
        if kind is Kind.MISSING:
            return self._documents_at <= entry.failed_at
        return kind is Kind.HOST and self.breaker.is_open

    def source_answered(self) -> None:
        """Record that the source answers: no repository waits for it."""
        self._source_until, self._source_tries, self.source_problem = 0.0, 0, ""

    def _park(
        self,
        entry: RepositoryState,
        kind: Kind,
        reason: str,
        now: float,
        *,
        is_served: bool = False,
    ) -> list[Any]:
        """Do no work on a repository for some time; return the handles of its messages."""
        differs, until = kind is Kind.DIVERGED, now + failures.parked_seconds(kind)
        handles = entry.park(reason, until, is_served=is_served, differs=differs)
        self._ready.pop(entry.identity, None)
        heapq.heappush(self._later, (entry.until, entry.identity))
        return handles

    def _entry(self, identity: str, now: float) -> RepositoryState:
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries[identity] = RepositoryState(identity)
            if self._unreadable.pop(identity, ""):
                entry.ask(now)
        return entry

    def _wake(self, entry: RepositoryState, now: float) -> None:
        if not entry.has_work():
            return
        if entry.until > now:
            heapq.heappush(self._later, (entry.until, entry.identity))
        else:
            self._ready[entry.identity] = None

    def status(self, now: float) -> Status:
        """Return the remaining work, after one pass over all repositories."""
        return status_of(self._entries.values(), self._unreadable, now, compared=self.compared)

    @property
    def repositories(self) -> int:
        """The number of known repositories."""
        return len(self._entries)

    def with_records(self, paths: Mapping[str, str]) -> list[str]:
        """Return the paths of idle repositories of which the mirror has shown a push."""
        idle = (entry.identity for entry in self._entries.values() if entry.tip and not entry.busy)
        return [paths[identity] for identity in idle if identity in paths]

    def shown(self, identity: str) -> tuple[int, str]:
        """Return number and hash of the last push of a repository that the mirror shows."""
        entry = self._entries.get(identity)
        return (entry.tip, entry.hash) if entry is not None else (0, "")

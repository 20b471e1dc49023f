"""The applier of a mirror: applies every push of the stream to the mirror's repositories.

The mirror's own push logs are its position. At the start, after each new connection to the broker
and now and then, they are compared with the primary's push logs: missing pushes come from the
source, even if the stream forgot them. The key of a repository is its identity; paths are only
looked up for messages to people.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from hgfleet.core.daemons import systemd
from hgfleet.core.errors import HgfleetError, PushlogError
from hgfleet.core.stored_time import SLACK_SECONDS, past
from hgfleet.replication.documents import documents
from hgfleet.replication.documents.first_documents import FirstDocuments
from hgfleet.replication.mirror import places, state_file
from hgfleet.replication.mirror.failures import Kind
from hgfleet.replication.mirror.scheduler import Scheduler
from hgfleet.replication.mirror.subscription import Subscription
from hgfleet.replication.mirror.worker_pool import Pool
from hgfleet.replication.protocol import messages, tasks
from hgfleet.replication.protocol.connection import FAILURES
from hgfleet.replication.protocol.messages import Applied, Brought, Lease, push_name
from hgfleet.replication.repositories.registry_paths import Known

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from nats.aio.msg import Msg

    from hgfleet.replication.mirror.applier_parts import Parts
    from hgfleet.replication.mirror.jobs import Job, Listed
    from hgfleet.replication.mirror.places import Place
    from hgfleet.replication.mirror.repository_state import Outcome, Status
    from hgfleet.replication.protocol.messages import Hint
    from hgfleet.replication.protocol.settings import Settings

WORKERS: Final = 2
COMPARE_SECONDS: Final = 600.0
"""Between comparisons of all positions with the primary's, if no event asks for a comparison."""

DOCUMENTS_SECONDS: Final = 30.0
"""Between checks of the primary's documents; a message of the broker starts a check at once."""

DOCUMENTS_PAUSE_SECONDS: Final = 1.0
"""Least time between two checks."""

COMPARE_AGAIN_SECONDS: Final = 5.0
"""Wait after a comparison that failed."""

IDLE_SECONDS: Final = 60.0
END_SECONDS: Final = 5.0
"""Time for running jobs to end when the applier is stopped."""


class Applier:
    """The daemon."""

    def __init__(self, settings: Settings, pool: Pool, parts: Parts) -> None:
        self._settings, self._pool, self._parts = settings, pool, parts
        self._say = parts.say
        self._scheduler = Scheduler(can_repair=parts.can_repair)
        self._threads = ThreadPoolExecutor(WORKERS + 1, "worker")
        self._running: set[asyncio.Task[None]] = set()
        self._poke = asyncio.Event()
        self._compare = asyncio.Event()
        self._documents = asyncio.Event()
        self._stop = asyncio.Event()
        self._boot = uuid.uuid4().hex
        self._lease_until = 0.0
        self._heard_at = -math.inf
        self._known = Known()
        self._source_problem, self._documents_problem = "", ""
        self._written: state_file.State | None = None
        self._first = FirstDocuments(parts.first, self._compare.set, self._tell_brought, parts.say)
        self._subscription = Subscription(
            *(settings, self._received, self._confirmed, self._on_asked),
            *(self._connected, self._hinted, parts.say),
        )

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        parts: list[Callable[[], Awaitable[object]]] = [
            self._subscription.run,
            self._dispatch,
            self._compare_again,
            self._bring_documents,
            self._first.run,
            self._beat,
            self._stop.wait,
        ]
        started = [asyncio.ensure_future(part()) for part in parts]
        systemd.notify("READY=1")
        done, _rest = await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
        systemd.notify("STOPPING=1")
        if self._running:
            await asyncio.wait(self._running, timeout=END_SECONDS)
        await tasks.cancel(started)
        await loop.run_in_executor(None, self._pool.close)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for task in done:
            task.result()

    async def _received(self, message: Msg) -> None:
        """Take a message of the stream of pushes."""
        try:
            push = messages.decode_push(message.headers, message.data)
        except messages.LargeRecordError as large:
            now = time.monotonic()
            self._scheduler.announce(large.repository, large.number, now, large.session, large.hash)
            await self._acknowledge([message])
        except PushlogError as error:
            self._say("push-unreadable", subject=message.subject, reason=error)
            identity = message.subject.rpartition(".")[2]
            self._scheduler.refuse(identity, str(error), time.monotonic())
            await self._acknowledge([message])
        else:
            record = push.record
            handles = self._scheduler.offer(push, message, time.monotonic())
            if handles and self._scheduler.shown(record.repository)[0] >= record.id:
                # The relay may have missed the report, or may have been restarted since.
                await self._tell_applied(record.repository)
            await self._acknowledge(handles)
        self._poke.set()

    @staticmethod
    async def _acknowledge(handles: Iterable[Msg]) -> None:
        for handle in handles:
            # If an acknowledgement is lost, the message comes again, and is recognized.
            with contextlib.suppress(*FAILURES):
                await handle.ack()

    async def _confirmed(self, message: Msg) -> None:
        try:
            confirmed = messages.decode_confirmed(message.data)
        except ValueError as error:
            self._say("confirmation-unreadable", reason=error)
            return
        if confirmed.boot == self._boot and confirmed.sent <= time.time():
            self._extend(confirmed.sent)
            for identity, number, hash_ in confirmed.pushes():
                self._scheduler.announce(identity, number, time.monotonic(), hash_=hash_)
            self._poke.set()
            self._write()

    def _extend(self, sent: float) -> None:
        # If a lease ends later than any lease given now, the clock was set back since.
        seconds = self._settings.lease_seconds
        known = past(self._lease_until, time.time(), seconds + SLACK_SECONDS)
        self._lease_until = max(known, sent + seconds)

    def _connected(self) -> None:
        """Compare again: the stream may have forgotten pushes since the last connection."""
        self._scheduler.connected(self._heard_at)
        self._compare.set()
        self._documents.set()
        self._first.connected()

    def _hinted(self, subject: str, body: bytes) -> None:
        self._first.hint(subject, body)
        self._documents.set()

    async def _tell_brought(self, name: str, hint: Hint) -> None:
        host = self._settings.host
        brought = Brought(host, name, hint.boot, hint.number)
        await self._subscription.tell(messages.applied(host), brought.body())

    async def _dispatch(self) -> None:
        """Give jobs to free workers."""
        while True:
            self._poke.clear()
            now = time.monotonic()
            while len(self._running) < WORKERS:
                job = self._scheduler.next_job(now)
                if job is None:
                    break
                task = asyncio.ensure_future(self._work(job))
                self._running.add(task)
                task.add_done_callback(self._ended)
            later = self._scheduler.next_time()
            wait = IDLE_SECONDS if later is None else min(max(later - now, 0.01), IDLE_SECONDS)
            await tasks.until(self._poke, wait)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._poke.set()
        if not task.cancelled() and task.exception() is not None:
            self._say("applier-broken", reason=repr(task.exception()))
            self._stop.set()

    async def _work(self, job: Job) -> None:
        loop, began = asyncio.get_running_loop(), time.monotonic()
        result = await loop.run_in_executor(self._threads, self._pool.run, job)
        outcome = self._scheduler.finished(job, result, time.monotonic())
        if outcome.shown:
            await self._tell_applied(job.identity)
            self._say_applied(job, outcome, time.monotonic() - began)
        await self._acknowledge(outcome.acknowledge)
        if result.failure is not None:
            waits = result.failure.kind in (Kind.READERS, Kind.MISSING)
            event = "push-waits" if waits else "push-failed"
            self._say(
                "repository-parked" if outcome.parked else event,
                repository=self._name(job.identity),
                push=push_name(job.identity, outcome.blocked) if outcome.blocked else None,
                id=outcome.session or None,
                kind=result.failure.kind,
                reason=result.failure.reason,
            )
            if waits:
                self._documents.set()
        if outcome.compare:
            self._compare.set()
        if result.failure is not None or not self._scheduler.status(time.monotonic()).waiting:
            self._write()

    def _name(self, identity: str) -> str:
        """Return the path of a repository, for people."""
        return self._known.paths.get(identity, identity)

    def _say_applied(self, job: Job, outcome: Outcome, seconds: float) -> None:
        """Log a line for each push that a message named, and for the newest push."""
        for number, session in sorted(({outcome.shown: ""} | outcome.sessions).items()):
            self._say(
                "applied",
                repository=self._name(job.identity),
                push=push_name(job.identity, number),
                id=session or None,
                seconds=seconds,
            )

    async def _tell_applied(self, identity: str) -> None:
        host = self._settings.host
        applied = Applied(host, identity, *self._scheduler.shown(identity))
        subject = messages.applied(host)
        await self._subscription.tell(subject, applied.body(), applied.headers())

    async def _on_asked(self, message: Msg) -> None:
        """Report to the relay which pushes this mirror shows."""
        try:
            asked = messages.decode_asked(message.data)
        except ValueError as error:
            self._say("question-unreadable", reason=error)
            return
        for identity in asked.repositories:
            if self._scheduler.shown(identity)[0]:
                await self._tell_applied(identity)

    async def _compare_again(self) -> None:
        """Compare positions with the primary's, on request and now and then."""
        loop = asyncio.get_running_loop()
        wait = 0.0
        while True:
            await tasks.until(self._compare, wait)
            self._compare.clear()
            began = time.monotonic()
            try:
                tips, listed = await loop.run_in_executor(None, self._look)
            except HgfleetError as error:
                if str(error) != self._source_problem:
                    self._say("source-away", reason=error)
                self._source_problem, wait = str(error), COMPARE_AGAIN_SECONDS
            else:
                self._source_problem, wait = "", COMPARE_SECONDS
                self._scheduler.source_answered()
                handles = self._scheduler.compare(listed, tips, began, time.monotonic())
                await self._acknowledge(handles)
                self._poke.set()
            await self._read_registry()
            self._write()

    async def _read_registry(self) -> None:
        """Read the paths of this mirror's registry, and its deleted repositories."""
        try:
            self._known = await asyncio.to_thread(self._parts.registry)
        except HgfleetError as error:
            self._say("registry-unreadable", reason=error)
            return
        await self._acknowledge(self._scheduler.purge(self._known.purged))

    def _look(self) -> tuple[dict[str, Place], list[Listed]]:
        # In this order: a mirror is never ahead of a listing that is newer than its own tips.
        tips = places.find(self._settings.repositories)
        if self._parts.sync is not None:
            # These tips are reported, and a killed applier may have left them unsynced.
            self._parts.sync()
        listed = list(self._parts.listing())
        return places.against(self._settings.repositories, tips, listed), listed

    async def _bring_documents(self) -> None:
        """Fetch the primary's documents, on a hint of a change and now and then."""
        while True:
            self._documents.clear()
            began = time.monotonic()
            try:
                changed = await asyncio.to_thread(self._parts.documents)
            except (HgfleetError, OSError) as error:
                if str(error) != self._documents_problem:
                    self._say("documents-away", reason=error)
                self._documents_problem = str(error)
            else:
                self._documents_problem = ""
                await self._read_registry()
                is_whole = documents.REGISTRY not in self._parts.held().refused
                self._scheduler.brought(began, time.monotonic(), registry=is_whole)
                self._poke.set()
                if changed or await self._is_emptied():
                    # Repositories may have come, moved or gone.
                    self._compare.set()
            await asyncio.sleep(DOCUMENTS_PAUSE_SECONDS)
            await tasks.until(self._documents, DOCUMENTS_SECONDS)

    async def _is_emptied(self) -> bool:
        """Whether another process emptied a repository; the source still has it."""
        paths = self._scheduler.with_records(self._known.paths)
        emptied = await asyncio.to_thread(places.emptied, self._settings.repositories, paths)
        if emptied:
            self._say("repository-emptied", repository=emptied[0], repositories=len(emptied))
        return bool(emptied)

    async def _beat(self) -> None:
        """Send heartbeats, and write the state."""
        while True:
            status = self._status()
            lease = Lease(
                *(self._settings.host, self._boot, status.caught_up),
                *(status.waiting, len(status.parked), time.time()),
            )
            await self._subscription.tell(messages.leases(self._settings.host), lease.body())
            # The primary may be down: reads continue, as no mirror can be ahead of the stream.
            asked_at = time.monotonic()
            if await self._subscription.answers():
                self._heard_at = asked_at
                self._extend(lease.sent)
            self._write()
            await asyncio.sleep(self._settings.lease_seconds / 3)

    def _status(self) -> Status:
        status = self._scheduler.status(time.monotonic())
        # A mirror that was away may not know yet which tokens were revoked.
        return status._replace(caught_up=status.caught_up and self._first.are_tokens_known)

    def _write(self) -> None:
        problem = self._source_problem or self._documents_problem
        held = self._parts.held()
        held = held._replace(away={**held.away, **self._first.problems})
        state = state_file.of(
            *(self._scheduler, self._status(), held, self._name),
            host=self._settings.host,
            lease_until=self._lease_until,
            source=problem or self._scheduler.source_problem,
            broker=self._subscription.problem,
        )
        if state != self._written:
            self._written = state
            state_file.write(self._settings.state, state)


def run(settings: Settings, parts: Parts) -> None:
    """Run the applier until it is stopped."""
    pool = Pool(WORKERS, parts.make_worker, "hgfleet.replication.mirror.worker")
    asyncio.run(_run(settings, pool, parts))


async def _run(settings: Settings, pool: Pool, parts: Parts) -> None:
    await Applier(settings, pool, parts).run()

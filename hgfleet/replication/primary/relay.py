"""Relay: publishes every committed record of every push log, and answers sessions that wait.

A session wakes the relay after its push. A scan at the start, and now and then, finds the pushes of
sessions that were killed before. If the relay dies, nothing is lost: the push logs are the outbox,
and the stream has the last published record.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import HgfleetError
from hgfleet.hg import required_copy
from hgfleet.replication.primary import outbox, visibility
from hgfleet.replication.primary.announcer import Announcer
from hgfleet.replication.primary.broker import Broker, BrokerError
from hgfleet.replication.primary.changegroups import Changegroups
from hgfleet.replication.primary.hint_publisher import HintPublisher
from hgfleet.replication.primary.leases import Members
from hgfleet.replication.primary.positions import Positions
from hgfleet.replication.primary.publisher import Publisher
from hgfleet.replication.primary.refusals import Refusals
from hgfleet.replication.primary.relay_problems import Problems
from hgfleet.replication.primary.sessions import Sessions
from hgfleet.replication.primary.visibility import Answer, Shown
from hgfleet.replication.primary.waiting import Waiting
from hgfleet.replication.primary.wake_server import CopyRequest, DocumentRequest, WakeServer
from hgfleet.replication.protocol import messages
from hgfleet.replication.repositories.group_sync import GroupSync, syncing
from hgfleet.replication.repositories.readers_gate import RegistryStamp
from hgfleet.replication.repositories.served import Served
from hgfleet.replication.terms.repository_fences import ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from nats.aio.msg import Msg

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.primary.publisher import Scan
    from hgfleet.replication.primary.wake_server import Asked, Request
    from hgfleet.replication.protocol.settings import Settings

SCAN_SECONDS: Final = 30.0
"""Between scans of all push logs; a scan of 10,000 takes 0.1 s."""

WORKERS: Final = 8
"""Repositories that are published at the same time."""

REFUSED_SECONDS: Final = 1.0
"""Pause of a worker whose message the broker has refused."""


class Relay:
    """The relay of a primary. `background` are further tasks that run as long as it does.

    `name_former` is called when the brokers have confirmed this primary (`former_terms.settle`).

    For `settle_seconds` (default: a lease) after a start of the relay or a change of the broker, no
    session gets the answer that replication is down. By then a restart is over, or the mirrors
    that lost the broker have failed their health checks.
    """

    def __init__(
        self,
        settings: Settings,
        say: Callable[..., None],
        *,
        name_former: Callable[..., Coroutine[Any, Any, None]],
        scan_seconds: float = SCAN_SECONDS,
        settle_seconds: float | None = None,
        background: Sequence[Callable[[Relay], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self.settings, self.say = settings, say
        self.members = Members(settings.mirrors, settings.lease_seconds)
        self.shown, self.sessions = Shown(), Sessions()
        self.queue = outbox.Queue()
        self.problems, self.refusals = Problems(settings.terms, say), Refusals(say)
        self.positions = Positions(settings.positions)
        self.broker = Broker(
            settings,
            say,
            {"hgfleet.leases.*": self._on_lease, "hgfleet.applied.*": self._on_applied},
            self._on_connection,
        )
        self.served = Served(settings, lambda reason: say("registry", reason=reason))
        self.changegroups = Changegroups(settings.hgrc, say)
        self.publisher = Publisher(
            *(settings, self.positions, self.broker, self.changegroups, self.served),
            *(RegistryStamp(settings.dynamic), self.sessions, GroupSync(syncing(settings))),
            *(self._on_published, self._on_learnt, say),
        )
        self.announcer = Announcer(
            *(settings, self.positions, self.broker, self.shown, self.members, self.served), say
        )
        self._scan_seconds, self._name_former = scan_seconds, name_former
        self._settle_seconds = settings.lease_seconds if settle_seconds is None else settle_seconds
        self._background = background
        self._news = asyncio.Event()
        self._waiting = Waiting()
        self._asked: Counter[str] = Counter()
        """Repositories, by identity, whose sessions wait."""
        self.documents = HintPublisher(
            self.broker, self.members, self._waiting, self._is_settled, say
        )
        self._paths: Mapping[str, str] = {}

    async def run(self) -> None:
        """Relay until cancelled."""
        sessions = WakeServer(self.settings.wake, self.respond, self.say)
        server = await sessions.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sessions.end_with_sessions(server))
                tasks.create_task(self.broker.run())
                tasks.create_task(self._scan_for_ever())
                tasks.create_task(self._report_for_ever())
                tasks.create_task(self.announcer.run())
                for _ in range(WORKERS):
                    tasks.create_task(self._work())
                for run in self._background:
                    tasks.create_task(run(self))
                self.say("started", repositories=str(self.settings.repositories))
                systemd.notify("READY=1")
        finally:
            await self.changegroups.close()
            self.positions.close()

    # -- publication -----------------------------------------------------------------------------

    def add(self, repositories: Iterable[str], *, first: bool = False) -> None:
        """Queue repositories for publication, by their identities."""
        for repository in repositories:
            self.queue.add(repository, first=first)
        self._news.set()

    async def _work(self) -> None:
        while True:
            await self.broker.ready.wait()
            repository = self.queue.take()
            if repository is None:
                self._news.clear()
                await self._news.wait()
                continue
            is_refused = False
            try:
                await self.publisher.publish(repository)
                self.problems.unpublished.pop(repository, None)
            except ForkedError as error:
                await asyncio.to_thread(self.problems.fence, error.fenced, new=error.new)
                self._waiting.tell()
            except BrokerError as error:
                self.queue.add(repository)
                is_refused = True
                if self.broker.ready.is_set():
                    self.refusals.note(repository, str(error))
                    self._waiting.tell()
            except (HgfleetError, OSError) as error:
                path = self._paths.get(repository, repository)
                self.problems.leave(repository, path, str(error))
                self._waiting.tell()
            finally:
                self.queue.done(repository, refused=is_refused)
                self._news.set()
            if not is_refused:
                # It may also be archived, deleted, fenced or unreadable: then nothing is sent.
                self.refusals.end(repository)
            elif self.broker.ready.is_set():
                await asyncio.sleep(REFUSED_SECONDS)

    def _on_published(self, path: str, entry: Entry) -> None:
        record = entry.record
        self.refusals.clear()
        self.shown.published(record.repository, record.id, entry.hash)
        self.announcer.published(record.repository, record.id, entry.hash)
        session = self.sessions.of(record.repository, record.id) or None
        name = messages.push_name(record.repository, record.id)
        self.say("published", repository=path, push=name, id=session)
        self._waiting.tell()

    async def _on_connection(self, broker: Broker) -> None:
        self.refusals.clear()
        await self._name_former(
            self.settings, broker.stream_api(), self.served, broker.guard.epoch, self.say
        )
        self.add(self.publisher.compare())
        self.add(await self.publisher.doubted())
        self.announcer.connected()

    # -- scans -----------------------------------------------------------------------------------

    async def _scan_for_ever(self) -> None:
        while True:
            try:
                scan = await asyncio.to_thread(self.publisher.scan)
            except (HgfleetError, OSError) as error:
                self.problems.note("", f"the repositories cannot be listed: {error}")
            else:
                self.problems.end("")
                self._paths = scan.paths
                await self._end_with(scan)
                # The problem of a repository may be over, without a push to it.
                self.add([*scan.changed, *self.problems.unpublished.copy()])
            await asyncio.sleep(self._scan_seconds)

    async def _end_with(self, scan: Scan) -> None:
        """Drop the problems of repositories that are gone, and the positions of deleted ones."""
        if scan.purged is None:
            return
        self.problems.keep(scan.paths)
        await asyncio.to_thread(self.problems.purge, scan.purged)
        self.announcer.keep(scan.paths)
        for repository in scan.purged:
            self.positions.forget(repository)
        await self.broker.tend_objects(scan.purged)

    # -- mirrors ---------------------------------------------------------------------------------

    async def _on_lease(self, message: Msg) -> None:
        try:
            lease = messages.decode_lease(message.data)
        except ValueError as error:
            self.problems.ignore(message.subject, str(error))
            return
        if wrong := self.members.refusal(message.subject, lease.host):
            self.problems.ignore(message.subject, wrong)
            return
        now = time.monotonic()
        self.members.hear(lease, now)
        self._announce(now)
        confirmed = messages.Confirmed(
            *(lease.host, lease.boot, lease.sent, self.settings.lease_seconds),
            *(self.members.is_member(lease.host, now), self.publisher.unsent),
        )
        await self.broker.tell(messages.confirmed(lease.host), confirmed.body())

    async def _on_applied(self, message: Msg) -> None:
        try:
            applied = messages.decode_applied(message.data, message.headers)
        except ValueError as error:
            self.problems.ignore(message.subject, str(error))
            return
        if wrong := self.members.refusal(message.subject, applied.host):
            self.problems.ignore(message.subject, wrong)
        elif isinstance(applied, messages.Brought):
            self.documents.brought(applied)
        elif self.shown.applied(applied.host, applied.repository, applied.id, applied.hash):
            self.announcer.applied(applied.repository)
            self._waiting.tell()

    def _announce(self, now: float) -> None:
        joined, left = self.members.change(now)
        for host in joined:
            self.say("mirror-joined", mirror=host)
        for host in left:
            self.say("mirror-left", mirror=host)
        if joined or left:
            self.announcer.mirrors_changed()
            self._waiting.tell()

    # -- sessions --------------------------------------------------------------------------------

    async def respond(self, request: Asked) -> dict[str, Any]:
        """Publish a change, and wait until the live mirrors show it, for the time of the request.

        If waiting cannot help, the answer comes at once.
        """
        if isinstance(request, CopyRequest):
            answer = await self._waiting.answer(
                lambda seconds: self._copies(request.required, seconds),
                lambda found: self._is_settled() or visibility.has_copy(found, request.required),
                request.wait,
            )
        elif isinstance(request, DocumentRequest):
            hint, publishing = self.documents.begin(request.document)
            answer = await self._waiting.answer(
                lambda seconds: self.documents.answer(
                    request.document, hint, seconds, time.monotonic()
                ),
                lambda answer: self._is_final(answer, takes=not publishing.done()),
                request.wait,
            )
        else:
            answer = await self._push_answer(request)
        return answer.to_json()

    async def _push_answer(self, request: Request) -> Answer:
        repository, unpublished = request.repository, self.problems.unpublished
        self.sessions.note(repository, request.id, request.session)
        unpublished.pop(repository, None)
        self._asked[repository] += 1
        self.shown.expect(repository)
        try:
            await asyncio.to_thread(self.problems.recheck, repository)
            await self._learn(request)
            self.add([repository], first=True)
            return await self._waiting.answer(
                lambda seconds: self._answer(request, seconds),
                lambda answer: self._is_final(
                    answer, takes=not (self.refusals.reason or repository in unpublished)
                ),
                request.wait,
            )
        finally:
            self._asked[repository] -= 1
            if not self._asked[repository]:
                del self._asked[repository]

    def _is_final(self, answer: Answer, *, takes: bool) -> bool:
        takes = takes and self.broker.ready.is_set()
        return visibility.is_final(answer, settled=self._is_settled(), takes=takes)

    def _copies(self, required: str, seconds: float) -> Answer:
        """Return which mirrors a push can reach, if the broker accepts pushes of any size."""
        has_room = self.broker.has_objects or required != required_copy.BROKER
        takes = self.broker.ready.is_set() and not self.refusals.reason and has_room
        return self._answered(self.members.live(time.monotonic()), takes, seconds)

    def _answered(
        self, have: Collection[str], published: bool, seconds: float, problem: str = ""
    ) -> Answer:
        live, mirrors = self.members.live(time.monotonic()), self.members.mirrors
        return visibility.answer(
            have, live, mirrors, published=published, seconds=seconds, problem=problem
        )

    def _is_settled(self) -> bool:
        changed_at = max(self.broker.changed_at, self.refusals.began)
        return time.monotonic() - changed_at >= self._settle_seconds

    async def _learn(self, request: Request) -> None:
        """Learn the hashes of pushes that a relay before this one published."""
        position = self.positions.get(request.repository)
        if position is None or self.shown.knows(request.repository, request.id):
            return
        with contextlib.suppress(HgfleetError, OSError):
            hashes = await asyncio.to_thread(self.publisher.hashes, position, request.id)
            # The newest hashes are kept, and the push of the session is among them.
            for number in sorted(hashes):
                self.shown.published(request.repository, number, hashes[number])

    def _on_learnt(self, entry: Entry) -> None:
        """Take over a push that the stream turns out to have, for sessions that wait."""
        record = entry.record
        if record.repository in self._asked:
            self.shown.published(record.repository, record.id, entry.hash)
            self._waiting.tell()

    def _answer(self, request: Request, seconds: float) -> Answer:
        push = request.repository, request.id, request.hash
        fenced = self.problems.fenced.get(request.repository)
        return self._answered(
            self.shown.showing(*push),
            self.shown.is_published(*push),
            seconds,
            problem=fenced.pusher if fenced else "",
        )

    # -- state -----------------------------------------------------------------------------------

    async def _report_for_ever(self) -> None:
        while True:
            self._announce(time.monotonic())
            await asyncio.to_thread(self.problems.look)
            await self.publisher.note_unsent(self.queue, refused=bool(self.refusals.reason))
            self.problems.set("positions", self.positions.flush())
            try:
                text = json.dumps(self.state(), indent=1)
                files.replace(self.settings.state / "state.json", text, durable=False)
                self.problems.end("state")
            except OSError as error:
                self.problems.note("state", f"the state cannot be written: {error}")
            systemd.notify("WATCHDOG=1")
            await asyncio.sleep(self.settings.lease_seconds / 3)

    def state(self) -> dict[str, Any]:
        """Describe the relay for other programs of the host."""
        clock = time.time()
        return {
            "role": str(self.settings.role),
            "host": self.settings.host,
            "pid": os.getpid(),
            "written": round(clock, 1),
            "broker": self.broker.state(self.refusals.reason),
            "waiting": len(self.queue),
            "waiting_seconds": round(self.queue.longest(), 1),
            "events": self.announcer.state(),
            "mirrors": self.members.report(time.monotonic(), clock),
            **self.problems.state(self._paths),
        }

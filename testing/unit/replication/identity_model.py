"""A mirror that follows a primary, in memory.

The registry's text, the plan of the folders, the scheduler, the readers' gate and the decision
about each record are the service's own; disk, stream and source are dictionaries. Readers are
answered as web workers do: by the entry of the registry that lies on the host, if the folder has
the entry's identity, with tokens and manifests that lie there.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import parse
from hgfleet.replication.mirror import follow_plan
from hgfleet.replication.mirror.failures import Failure, Kind
from hgfleet.replication.mirror.follow_plan import AWAY, GONE, Folder
from hgfleet.replication.mirror.jobs import Result
from hgfleet.replication.mirror.places import Place
from hgfleet.replication.mirror.record_order import Step, decide
from hgfleet.replication.mirror.scheduler import Scheduler
from hgfleet.replication.repositories.readers_gate import covers, stamp
from testing.support.identity_world import Host, Repository, Seen, World, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hgfleet.auth.tokens import Token
    from hgfleet.bundles.decide.manifest import Entry as Line
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.replication.mirror.jobs import Job


class KilledError(Exception):
    """The process ended at this step."""


class LateError(Exception):
    """A job that cannot go on."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


class Mirror:
    """A mirror: its registry and folders last, its scheduler does not."""

    def __init__(self, primary: World) -> None:
        self.primary = primary
        self.registry = b""
        self.folders: dict[str, Repository] = {}
        self.tokens: Mapping[str, Token] = {}
        self.manifests: dict[str, tuple[Line, ...]] = {}
        self.source_is_up = True
        self.now = 0.0
        self.check: Callable[[], None] = lambda: None
        self.acknowledged: set[int] = set()
        self.start()

    def start(self) -> None:
        """Begin an applier: messages that were not acknowledged come again."""
        self.scheduler = Scheduler()
        self.delivered: set[int] = set()

    @property
    def dynamic(self) -> Dynamic:
        """The registry that lies here."""
        return parts_of(self.registry).dynamic

    def seen(self) -> set[Seen]:
        """Return all that each asker gets here."""
        lines = [line.line().encode() for manifest in self.manifests.values() for line in manifest]
        return set(self.primary.seen(Host(self.registry, self.folders, self.tokens, lines)))

    # --- documents ---

    def documents(
        self, kill_at: int | None = None, meanwhile: Callable[[int], None] = lambda _: None
    ) -> None:
        """Bring the registry, follow it, and bring tokens and manifests.

        `kill_at` is the step before which the process is killed; `meanwhile` may change the primary
        before each step.
        """
        if not self.source_is_up:
            return
        began = self.now
        listed = dict(self.primary.manifests)
        steps = itertools.count()

        def step() -> None:
            self.check()
            number = next(steps)
            meanwhile(number)
            if number == kill_at:
                raise KilledError

        try:
            step()
            self.registry = self.primary.registry
            for _ in itertools.chain(self._follow(), self._others(listed)):
                step()
        except KilledError:
            self.start()
            return
        self._acknowledge(self.scheduler.purge(self.dynamic.purged))
        self.scheduler.brought(began, self.now)

    def _others(self, listed: Mapping[str, tuple[Line, ...]]) -> Iterator[None]:
        """Bring the documents behind the registry, in the order of `documents.plan`."""
        for name in [name for name in self.manifests if name not in listed]:
            yield
            del self.manifests[name]
        yield
        self.tokens = dict(self.primary.tokens)
        for name, lines in listed.items():
            yield
            # A document has the listed digest, or comes another time.
            if self.primary.manifests.get(name) == lines:
                self.manifests[name] = lines

    def _follow(self) -> Iterator[None]:
        """Carry out the plan; a disk makes each step at once."""
        dynamic, folders = self.dynamic, self.folders
        wanted = {path: entry.identity for path, entry in dynamic.repositories.items()}
        present = [Folder(place, repository.identity) for place, repository in folders.items()]
        plan = follow_plan.plan(present, wanted, dynamic.purged)
        for folder in plan.delete:
            yield
            folders[f"{AWAY}/{GONE}{folder.identity}"] = folders.pop(folder.place)
        for folder, name in plan.set_aside:
            yield
            folders[f"{AWAY}/{name}"] = folders.pop(folder.place)
        for folder in plan.take_away:
            yield
            folders[f"{AWAY}/{folder.identity}"] = folders.pop(folder.place)
        for folder, path in plan.put:
            yield
            assert path not in folders
            folders[path] = folders.pop(f"{AWAY}/{folder.away or folder.identity}")
        for path, entry in dynamic.repositories.items():
            yield
            if entry.archived is None and path not in folders:
                folders[path] = Repository(entry.identity)
        for place in [place for place in folders if place.startswith(f"{AWAY}/{GONE}")]:
            yield
            del folders[place]

    # --- pushes ---

    def to_deliver(self) -> list[int]:
        """Return the numbers of messages that the broker has for this mirror."""
        done = self.acknowledged | self.delivered
        return [number for number in range(len(self.primary.stream)) if number not in done]

    def deliver(self, number: int) -> None:
        """Give the applier a message."""
        self.delivered.add(number)
        message = self.primary.stream[number]
        self._acknowledge(self.scheduler.offer(message, number, self.now))

    def _acknowledge(self, numbers: list[int]) -> None:
        self.acknowledged.update(numbers)

    def compare(self) -> None:
        """Compare all positions with the primary's."""
        if self.source_is_up:
            places = {
                repository.identity: Place(place, repository.tip())
                for place, repository in self.folders.items()
                if not place.startswith(AWAY)
            }
            listed = self.primary.listing()
            self._acknowledge(self.scheduler.compare(listed, places, self.now, self.now))

    def work(self, fault: Kind | None = None) -> bool:
        """Do the next job; return whether there was any."""
        job = self.scheduler.next_job(self.now)
        if job is None:
            return False
        failure = None
        try:
            if fault is not None:
                raise LateError(fault)
            self._do(job)
        except LateError as late:
            failure = Failure(late.kind, "made for the test")
        place = self._place(job)
        result = Result(self.folders[place].tip() if place in self.folders else Tip(), failure)
        self._acknowledge(self.scheduler.finished(job, result, self.now).acknowledge)
        return True

    def _place(self, job: Job) -> str:
        entries = self.dynamic.repositories.items()
        return next(
            (p for p, e in entries if e.identity == job.identity and e.archived is None), ""
        )

    def _do(self, job: Job) -> None:
        folder = self._folder(job)
        self._gate(job.stamps)
        for line, _ in job.messages:
            if self._apply(folder, line) is Step.GAP:
                self._catch_up(job, folder)
                self._apply(folder, line)
        if job.up_to_date:
            self._catch_up(job, folder)

    def _folder(self, job: Job) -> Repository:
        repository = self.folders.get(self._place(job))
        if repository is None or repository.identity != job.identity:
            raise LateError(Kind.MISSING)
        return repository

    def _gate(self, stamps: frozenset[str] | tuple[str, ...]) -> None:
        here = stamp(self.registry)
        if covers(here, stamps):
            return
        self._need_source()
        if not covers(here, (stamp(self.primary.registry),)):
            raise LateError(Kind.READERS)

    def _need_source(self) -> None:
        if not self.source_is_up:
            raise LateError(Kind.NETWORK)

    def _catch_up(self, job: Job, folder: Repository) -> None:
        self._need_source()
        there = self.primary.find(job.identity)
        if there is None:
            raise LateError(Kind.MISSING)
        lines = there.log[len(folder.log) :]
        if lines:
            self._gate(("",))
        for line in lines:
            self._apply(folder, line)

    def _apply(self, folder: Repository, line: bytes) -> Step:
        record = parse(line)
        assert record.repository == folder.identity
        step, reason = decide(folder.tip(), record, line)
        assert step is not Step.DIVERGED, reason
        if step is Step.APPLY:
            folder.log.append(line)
            self.check()
        return step

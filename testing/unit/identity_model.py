"""A primary whose people change repositories, and a mirror that follows, in memory.

The registry's text, the plan of the folders, the scheduler, the readers' gate and the decision
about each record are those of the service; disk, stream and source are dictionaries. Readers are
answered as web workers do: by the entry of the registry that lies on the host, if the folder has
the entry's identity.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of, parse
from hgfleet.registry.dynamic_update import Update
from hgfleet.registry.entry import Entry
from hgfleet.registry.user_repositories import NOTHING
from hgfleet.registry.user_repositories import parse as parse_registry
from hgfleet.replication import follow_plan
from hgfleet.replication.failures import Failure, Kind
from hgfleet.replication.follow_plan import AWAY, GONE, Folder
from hgfleet.replication.jobs import Listed, Place, Result
from hgfleet.replication.messages import PushMessage
from hgfleet.replication.position import Step, decide
from hgfleet.replication.registry_gate import covers, stamp
from hgfleet.replication.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hgfleet.registry.model import Read
    from hgfleet.registry.user_repositories import Dynamic
    from hgfleet.replication.jobs import Job

ASKERS: Final = ("stranger", "staff", "bob")
READS: Final[tuple[Read, ...]] = ("public", ("staff",), ())
CREATED: Final = "2026-11-21T00:00:00Z"

Seen = tuple[str, str, str, int]
"""Asker, path, identity and number of a push."""


class KilledError(Exception):
    """The process ended at this step."""


class LateError(Exception):
    """A job that cannot go on."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class Repository:
    """A folder: the identity of its store, and its push log."""

    identity: str
    log: list[bytes] = field(default_factory=list)

    def tip(self) -> Tip:
        """Return the end of its push log."""
        last = self.log[-1:]
        return Tip(len(self.log), hash_of(last[0]), self.identity) if last else Tip()


def seen(dynamic: Dynamic, folders: Mapping[str, Repository]) -> Iterator[Seen]:
    """Yield all that each asker gets from a host with this registry and these folders."""
    for path, entry in dynamic.repositories.items():
        found = folders.get(path)
        if entry.archived is not None or found is None or found.identity != entry.identity:
            continue
        for asker in ASKERS:
            groups = entry.read if isinstance(entry.read, tuple) else ()
            if entry.read == "public" or asker == entry.owner or asker in groups:
                yield from (
                    (asker, path, found.identity, number + 1) for number in range(len(found.log))
                )


class Primary:
    """Repositories of a person, each change of them at once in the registry and on the disk."""

    def __init__(self) -> None:
        self.folders: dict[str, Repository] = {}
        self.registry = Update(NOTHING).render()
        self.stream: list[PushMessage] = []
        self.shown: set[Seen] = set()
        """All that it has ever shown to each asker."""
        self.former: dict[str, Repository] = {}
        self._made = itertools.count(1)

    @property
    def dynamic(self) -> Dynamic:
        """The registry of now."""
        return parse_registry(self.registry, "the primary's")

    def in_service(self) -> list[str]:
        """Return the paths of repositories that people use."""
        entries = self.dynamic.repositories
        return [path for path, entry in entries.items() if entry.archived is None]

    def archived(self) -> list[str]:
        """Return the paths of repositories out of service."""
        entries = self.dynamic.repositories
        return [path for path, entry in entries.items() if entry.archived is not None]

    def change(self, do: Callable[[Update], None]) -> None:
        """Change the registry."""
        update = Update(self.dynamic)
        do(update)
        self.registry = update.render()
        self.note()

    def note(self) -> None:
        """Note all that each asker may see now."""
        self.shown.update(seen(self.dynamic, self.folders))

    def create(self, path: str, read: Read) -> None:
        """Make a repository."""
        identity = f"{next(self._made):032x}"
        self.folders[path] = Repository(identity)
        entry = Entry("bob", created=CREATED, read=read, identity=identity)
        self.change(lambda entries: entries.__setitem__(path, entry))

    def push(self, path: str) -> None:
        """Append a record, and publish it."""
        found = self.folders[path]
        tip = found.tip()
        heads = Heads(digest=Heads.digest_of(()))
        record = Record(
            tip.id + 1, found.identity, "push", "bob", 1, tip.hash or FIRST, heads=heads
        )
        found.log.append(record.line())
        self.note()
        self.stream.append(
            PushMessage(path, record.line(), record, b"", registry=stamp(self.registry))
        )

    def rename(self, old: str, new: str) -> None:
        """Give a repository another path."""
        self.folders[new] = self.folders.pop(old)

        def move(entries: Update) -> None:
            entries[new] = entries[old]
            del entries[old]

        self.change(move)

    def set(self, path: str, **fields: Any) -> None:
        """Change an entry: its readers, or whether it is in service."""
        self.change(lambda entries: entries.update({path: replace(entries[path], **fields)}))

    def delete(self, path: str) -> None:
        """Delete a repository for good."""
        identity = self.folders.pop(path).identity

        def forget(entries: Update) -> None:
            del entries[path]
            entries.note_purged(identity)

        self.change(forget)

    def find(self, identity: str) -> Repository | None:
        """Return a repository in service."""
        entries = self.dynamic.repositories
        return next(
            (
                one
                for path, one in self.folders.items()
                if one.identity == identity and entries[path].archived is None
            ),
            None,
        )

    def listing(self) -> list[Listed]:
        """Return the answer to a mirror that compares."""
        found = [self.folders[path] for path in self.in_service()]
        return [Listed(one.identity, one.tip().id, one.tip().hash or FIRST) for one in found]


class Mirror:
    """A mirror: its registry and folders last, its scheduler does not."""

    def __init__(self, primary: Primary) -> None:
        self.primary = primary
        self.registry = b""
        self.folders: dict[str, Repository] = {}
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
        return parse_registry(self.registry, "the mirror's") if self.registry else NOTHING

    def seen(self) -> set[Seen]:
        """Return all that each asker gets here."""
        return set(seen(self.dynamic, self.folders))

    # --- documents ---

    def documents(self, kill_at: int | None = None) -> None:
        """Bring the registry, and follow it, unless the process is killed before a step."""
        if not self.source_is_up:
            return
        began = self.now
        steps = itertools.count()

        def step() -> None:
            self.check()
            if next(steps) == kill_at:
                raise KilledError

        try:
            step()
            self.registry = self.primary.registry
            for _ in self._follow():
                step()
        except KilledError:
            self.start()
            return
        self._acknowledge(self.scheduler.purge(self.dynamic.purged))
        self.scheduler.brought(began, self.now)

    def _follow(self) -> Iterator[None]:
        """Carry out the plan; each step is one that a disk makes at once."""
        dynamic, folders = self.dynamic, self.folders
        wanted = {path: entry.identity for path, entry in dynamic.repositories.items()}
        found = [Folder(place, one.identity) for place, one in folders.items()]
        plan = follow_plan.plan(found, wanted, dynamic.purged)
        for one in plan.delete:
            yield
            folders[f"{AWAY}/{GONE}{one.identity}"] = folders.pop(one.place)
        for one, name in plan.set_aside:
            yield
            folders[f"{AWAY}/{name}"] = folders.pop(one.place)
        for one in plan.take_away:
            yield
            folders[f"{AWAY}/{one.identity}"] = folders.pop(one.place)
        for one, path in plan.put:
            yield
            assert path not in folders
            folders[path] = folders.pop(f"{AWAY}/{one.away or one.identity}")
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
                one.identity: Place(place, one.tip())
                for place, one in self.folders.items()
                if not place.startswith(AWAY)
            }
            listed = self.primary.listing()
            self._acknowledge(self.scheduler.compare(listed, places, self.now, self.now))

    def work(self, fault: Kind | None = None) -> bool:
        """Do a job; returns whether there was one."""
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
        found = self.folders.get(self._place(job))
        if found is None or found.identity != job.identity:
            raise LateError(Kind.MISSING)
        return found

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

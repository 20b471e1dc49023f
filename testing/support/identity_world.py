"""A primary whose people change repositories, with its answers to askers: for models of identities.

The truth about who may read (who made which repository, and for whom) is kept apart from the
decisions of the service. Each change takes effect at once in the registry and on the disk. Then the
primary's answers, which the service decides, are compared with the truth.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.auth import token_sweep
from hgfleet.auth.tokens import Token
from hgfleet.bundles.decide import advertised
from hgfleet.bundles.decide.manifest import Entry as Line
from hgfleet.bundles.decide.manifest import object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.decide.plan import Stores
from hgfleet.bundles.steps.withdrawal import due
from hgfleet.bundles.stores.access import is_publishable, withdrawn
from hgfleet.core.errors import AccessDeniedError
from hgfleet.core.principal import Principal
from hgfleet.directory.person_state import ENABLED, PersonState
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.registry.dynamic.dynamic_update import Update
from hgfleet.registry.dynamic.effective import Parts
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.user_repositories import NOTHING, merged
from hgfleet.registry.dynamic.user_repositories import parse as parse_registry
from hgfleet.registry.model import registry as model
from hgfleet.registry.model.permissions import may_read
from hgfleet.replication.mirror.jobs import Listed
from hgfleet.replication.protocol.messages import PushMessage
from hgfleet.replication.repositories.readers_gate import stamp
from hgfleet.selfservice import owner_binding, rules
from testing.support.person_ids import entry_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hgfleet.registry.model.registry import Read

READS: Final[tuple[Read, ...]] = ("public", ("staff",), ())
CREATED: Final = "2026-11-21T00:00:00Z"
BEGIN: Final = datetime(2026, 11, 21, tzinfo=UTC).timestamp()
STEP_S: Final = 7200.0
"""Time between two people of the same name: more than clocks differ."""

STATIC: Final = model.build({}, {})
STAFF: Final = Principal("ann", frozenset({"staff"}))
OPEN, CLOSED = "https://open.example/b", "https://closed.example/b"

Seen = tuple[str, str, str, int]
"""Asker, path, identity and number of a push."""


@dataclass
class Repository:
    """A folder: the identity of its store, and its push log."""

    identity: str
    log: list[bytes] = field(default_factory=list)

    def tip(self) -> Tip:
        """Return the end of its push log."""
        last = self.log[-1:]
        return Tip(len(self.log), hash_of(last[0]), self.identity) if last else Tip()


class Host(NamedTuple):
    """All that decides the answers of a host; `lines` are the lines of all its manifests."""

    registry: bytes
    folders: Mapping[str, Repository]
    tokens: Mapping[str, Token]
    lines: Iterable[bytes]


@functools.lru_cache(maxsize=64)
def parts_of(registry: bytes) -> Parts:
    """Return a registry as each program reads it."""
    dynamic = parse_registry(registry, "a registry") if registry else NOTHING
    return Parts(merged(STATIC, dynamic), STATIC, dynamic)


class _Registry:
    """The registry that `advertised.readers` asks."""

    def __init__(self, registry: bytes) -> None:
        self._registry = registry

    def required(self) -> Parts:
        return parts_of(self._registry)


def stores_of(repository: model.Repository) -> Stores:
    """Return the stores for bundles of a repository."""
    places = {"open": OPEN}, {"closed": CLOSED}
    ours, others = places if repository.is_public else places[::-1]
    return Stores(ours, others=others)


def stamp_of(now: float) -> str:
    """Return a time in the format of entries and tokens."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class World:
    """The people, and the primary."""

    def __init__(self) -> None:
        self.folders: dict[str, Repository] = {}
        self.registry = Update(NOTHING).render()
        self.stream: list[PushMessage] = []
        self.shown: set[Seen] = set()
        """All that the primary has ever shown to each asker."""
        self.now = BEGIN
        self._made = itertools.count(1)
        self.bob = entry_uuid(BEGIN - STEP_S, 0)
        """The person id of the person who has the name today."""
        self.made_by: dict[str, str] = {}
        """Person id, by identity of a repository, or id of a token."""
        self.tokens: dict[str, Token] = {}
        self.manifests: dict[str, tuple[Line, ...]] = {}
        """The lines of each manifest, by identity."""
        self.content: dict[str, tuple[str, int]] = {}
        """Identity, and number of the last push in it, by URL of an object."""

    @property
    def dynamic(self) -> Any:
        """The current registry."""
        return parts_of(self.registry).dynamic

    def in_service(self) -> list[str]:
        """Return the paths of repositories that people use."""
        entries = self.dynamic.repositories
        return [path for path, entry in entries.items() if entry.archived is None]

    def archived(self) -> list[str]:
        """Return the paths of repositories out of service."""
        entries = self.dynamic.repositories
        return [path for path, entry in entries.items() if entry.archived is not None]

    def repository(self, identity: str) -> model.Repository:
        """Return a repository in the form that the decisions of the bundle jobs take."""
        registry = parts_of(self.registry).registry
        path = registry.paths().get(identity)
        if path is not None:
            return registry.repositories[path]
        gone = model.Repository(identity, "", (), (), publishing=True, bundles=())
        return withdrawn(replace(gone, identity=identity))

    # --- answers of the primary ---

    def host(self) -> Host:
        """Return all that decides the primary's answers."""
        lines = [line.line().encode() for manifest in self.manifests.values() for line in manifest]
        return Host(self.registry, self.folders, self.tokens, lines)

    def may(self, asker: str, path: str) -> bool:
        """Whether an asker may read at a path: the truth, without a decision of the service."""
        entry, identity = self.dynamic.repositories[path], self.folders[path].identity
        if entry.read == "public":
            return True
        return asker == self.made_by[identity] or (asker == "staff" and asker in entry.read)

    def truth(self) -> Iterator[Seen]:
        """Yield all that each asker may see now."""
        for path in self.in_service():
            repository = self.folders[path]
            for asker in ("stranger", "staff", self.bob):
                if self.may(asker, path):
                    yield from (
                        (asker, path, repository.identity, n + 1)
                        for n in range(len(repository.log))
                    )

    def seen(self, host: Host) -> Iterator[Seen]:
        """Yield all that each asker gets from a host, by the decisions of the service."""
        registry = parts_of(host.registry).registry
        bob = Principal("bob", frozenset(), self.bob)
        askers: dict[str, Principal | None] = {"stranger": None, "staff": STAFF, self.bob: bob}
        # Each host asks the directory, which knows the people of today.
        today = datetime.fromtimestamp(self.now, UTC)
        for name, token in host.tokens.items():
            if token.is_valid(today) and bob.owns(token):
                # Its holder gets the same answers as bob.
                assert self.made_by[name] == self.bob
        for path, repository in registry.repositories.items():
            folder = host.folders.get(path)
            if folder is None or folder.identity != repository.identity:
                continue
            is_public = advertised.readers(_Registry(host.registry), path, folder.identity)  # type: ignore[arg-type]
            lines, _ = advertised.choose(list(host.lines), folder.identity, is_public)
            bundled = [self.content[line.split()[0].decode()] for line in lines]
            for asker, person in askers.items():
                if not may_read(repository, person):
                    continue
                for identity, number in ((folder.identity, len(folder.log)), *bundled):
                    yield from ((asker, path, identity, n + 1) for n in range(number))

    def not_shown(self, seen: Iterable[Seen]) -> set[Seen]:
        """Return the pushes that the primary has never shown to that asker nor to strangers."""
        return {push for push in seen if not {push, ("stranger", *push[1:])} & self.shown}

    def note(self) -> None:
        """Record all that each asker may see now, and check that the primary shows no more."""
        truth = set(self.truth())
        self.shown |= truth
        assert set(self.seen(self.host())) <= truth

    # --- changes by people ---

    def change(self, do: Callable[[Update], None]) -> None:
        """Change the registry."""
        update = Update(self.dynamic)
        do(update)
        self.registry = update.render()
        self.note()

    def create(self, path: str, read: Read, *, knows_ids: bool = True) -> None:
        """Make a repository; a session of the release before knows no person ids."""
        identity = f"{next(self._made):032x}"
        self.folders[path] = Repository(identity)
        self.made_by[identity] = self.bob
        own = self.bob if knows_ids else ""
        entry = Entry("bob", "", stamp_of(self.now), read, identity=identity, owner_id=own)
        self.change(lambda entries: entries.__setitem__(path, entry))

    def fork(self, path: str, new: str, asked: str | None) -> None:
        """Fork a repository that the person may read, for no more readers than it has."""
        source = parts_of(self.registry).registry.repositories[path]
        if not may_read(source, Principal("bob", frozenset(), self.bob)):
            return
        try:
            read = rules.readers(asked, "public", source)
        except AccessDeniedError:
            return
        if source.read != "public":
            assert isinstance(read, tuple)
            assert set(read) <= set(source.read)
        self.create(new, "public" if read is None else read)
        self.push(new)

    def push(self, path: str) -> None:
        """Append a record, and publish it."""
        repository = self.folders[path]
        tip = repository.tip()
        heads = Heads(digest=Heads.digest_of(()))
        record = Record(
            tip.id + 1, repository.identity, "push", "bob", 1, tip.hash or FIRST, heads=heads
        )
        repository.log.append(record.line())
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

    def give(self, path: str) -> None:
        """Give a repository to the person of today, as an operator does."""
        self.made_by[self.folders[path].identity] = self.bob
        self.set(path, owner="bob", owner_id=self.bob)

    def exchange(self) -> None:
        """Give the name to another person."""
        self.now += STEP_S
        self.bob = entry_uuid(self.now, next(self._made))
        self.now += STEP_S
        self.note()

    def bind(self) -> None:
        """Have the sweep bind tokens and repositories that have only the name of their owner."""
        people = {"bob": PersonState(ENABLED, person_id=self.bob)}
        for name, own in token_sweep.to_bind(self.tokens, people, self.now).items():
            self.tokens[name] = replace(self.tokens[name], owner_id=own)
        self.change(
            lambda entries: owner_binding.apply(
                entries, owner_binding.to_bind(entries.dynamic, people, self.now)
            )
        )

    def make_token(self, *, knows_ids: bool) -> None:
        """Make a token of the person of today."""
        name = f"token{next(self._made)}"
        self.made_by[name] = self.bob
        own = self.bob if knows_ids else ""
        times = stamp_of(self.now), "2099-01-01T00:00:00Z"
        self.tokens[name] = Token("bob", "ab" * 32, "", *times, owner_id=own)
        self.note()

    def revoke(self, name: str) -> None:
        """Revoke a token."""
        del self.tokens[name]
        self.note()

    # --- requests of mirrors ---

    def find(self, identity: str) -> Repository | None:
        """Return a repository in service."""
        path = parts_of(self.registry).registry.paths().get(identity)
        return self.folders[path] if path is not None else None

    def listing(self) -> list[Listed]:
        """Return the answer to a mirror that compares."""
        repositories = [self.folders[path] for path in self.in_service()]
        return [
            Listed(repository.identity, repository.tip().id, repository.tip().hash or FIRST)
            for repository in repositories
        ]

    # --- bundle jobs ---

    def publish(self, path: str) -> None:
        """Publish a bundle of all pushes so far."""
        folder = self.folders[path]
        repository = self.repository(folder.identity)
        if not folder.log or not repository.bundles:
            return
        key = make_key(folder.identity, f"{len(folder.log):040x}", "1" * 64, "zstd")
        store = CLOSED if not repository.is_public else OPEN
        url = object_url(store, key)
        made = datetime.fromtimestamp(self.now, UTC)
        line = Line(url, "zstd-v2", "1" * 64, 10, len(folder.log), made, store == CLOSED)
        line = replace(line, identity=folder.identity)
        assert is_publishable(line, repository)
        self.content[url] = folder.identity, len(folder.log)
        self.manifests[folder.identity] = (line,)
        self.note()

    def withdraw(self) -> None:
        """Withdraw lines that clients must not get any more."""
        now = datetime.fromtimestamp(self.now, UTC)
        for identity, lines in list(self.manifests.items()):
            repository = self.repository(identity)
            dead = due(lines, repository, stores_of(repository), None, now)
            self.manifests[identity] = tuple(line for line in lines if line.url not in dead)
        self.note()

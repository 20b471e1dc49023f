"""A mirror of this release under a primary of the release before, which names no identities.

People change repositories in any order, and the applier is killed between any two steps. With any
registry, no reader gets a push at a path where the primary never showed it; and when the
primary is updated, each repository is where it belongs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hgfleet.registry.dynamic.dynamic_update import Update
from hgfleet.registry.model.permissions import may_read
from hgfleet.replication.mirror import follow_plan
from hgfleet.replication.mirror.follow_plan import AWAY, GONE, SHARED, Folder
from testing.support.identity_changes import carry_out, changes
from testing.support.identity_world import READS, STAFF, World, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Read
    from testing.support.identity_changes import Change
    from testing.support.identity_world import Repository, Seen

KINDS: Final = (
    *("create", "push", "rename", "readers", "readers and push", "delete", "archive", "restore"),
    *("move and make again", "move and make again", "delete and make again"),
)


class KilledError(Exception):
    """The applier ended at this step."""


@dataclass
class OnMirror:
    """A folder: its repository, how far that is, and the entry that it has followed."""

    repository: Repository
    pushes: int
    created: str = ""


def nameless(registry: bytes) -> bytes:
    """Return a registry as the release before writes it."""
    dynamic = parts_of(registry).dynamic
    update = Update(replace(dynamic, purged={}))
    for path in list(update):
        update[path] = replace(update[path], identity="")
    return update.render()


class Upgrade(RuleBasedStateMachine):
    """A primary of the release before, and a mirror that is updated."""

    @initialize(reads=st.permutations(READS), has_twin=st.booleans(), is_late=st.booleans())
    def begin(self, reads: list[Read], has_twin: bool, is_late: bool) -> None:
        """Begin as the applier of the release before left the mirror.

        It `is_late` if a registry came that the folders did not follow any more. A twin is of the
        same second, and on this mirror it is missing.
        """
        self.world = World()
        for change in (("create", 0, 1, reads[0]), ("push", 0, 0, ())):
            carry_out(self.world, change)
        self.folders: dict[str, OnMirror] = {
            path: OnMirror(repository, len(repository.log))
            for path, repository in self.world.folders.items()
        }
        if has_twin:
            carry_out(self.world, ("create", 0, 1, reads[1]))
        self.registry, self.names_identities = nameless(self.world.registry), False
        self.followed: dict[str, str] = {}
        """Times by path of the registry that the applier of the release before followed."""
        self.is_new = False
        """Whether the applier of this release has followed."""
        if is_late:
            self.followed = self.times()
            self.world.now += 1
            carry_out(self.world, ("move and make again", 0, 1, reads[2]))
            self.registry = nameless(self.world.registry)
            # The registry is the same as the primary's: nothing is fetched.
            for _ in self.follow():
                pass
            self.is_new = True
            self.no_reader_sees_more_than_at_the_primary()
        self.documents(None)

    @rule(
        made=st.lists(changes(KINDS), min_size=1, max_size=4),
        kill_at=st.none() | st.integers(0, 8),
        again=st.booleans(),
    )
    def people_and_documents(self, made: list[Change], kill_at: int | None, again: bool) -> None:
        """Change repositories, and bring the registry."""
        # The files that the mirror has seen are of another second.
        self.world.now += 1
        for change in made:
            carry_out(self.world, change)
        self.no_reader_sees_more_than_at_the_primary()
        self.documents(kill_at)
        if again:
            self.documents(None)
        self.pushes()

    def dynamic(self) -> Dynamic:
        """Return the registry that lies here."""
        return parts_of(self.registry).dynamic

    def documents(self, kill_at: int | None) -> None:
        """Bring the registry and follow it, as `DocumentSync` does, unless that is killed."""
        numbers = itertools.count()
        coming = self.world.registry if self.names_identities else nameless(self.world.registry)
        try:
            for _ in itertools.chain(self.leave(coming), self.follow()):
                self.no_reader_sees_more_than_at_the_primary()
                if next(numbers) == kill_at:
                    raise KilledError
        except KilledError:
            pass
        self.is_new = True
        self.no_reader_sees_more_than_at_the_primary()

    def times(self) -> dict[str, str]:
        """Return when the entries that lie here were created, by path."""
        return {path: entry.created for path, entry in self.dynamic().repositories.items()}

    def leave(self, coming: bytes) -> Iterator[None]:
        """Have folders leave before the registry comes (`Follow.leave`)."""
        before = dict(self.followed or self.times())
        before |= {path: folder.created for path, folder in self.folders.items() if folder.created}
        entries = parts_of(coming).dynamic.repositories.items()
        times = {path: entry.created for path, entry in entries if not entry.identity}
        before = {path: created for path, created in before.items() if not path.startswith(AWAY)}
        leaving = follow_plan.leaving(before, times) if times else {}
        for place, folder in self.folders.items():
            if place.startswith(AWAY) and f"{folder.created}{SHARED}" in leaving.values():
                yield
                folder.created += SHARED
        for path, followed in leaving.items():
            if path in self.folders:
                self.folders[path].created = followed
                yield
                away = f"{AWAY}/left-{len(self.folders)}-{self.world.now}"
                self.folders[away] = self.folders.pop(path)
        yield
        self.registry = coming

    def follow(self) -> Iterator[None]:
        """Mark the folders, and carry out the plan (`Follow.run`)."""
        entries = self.dynamic().repositories
        times = {path: entry.created for path, entry in entries.items() if not entry.identity}
        for path, created in times.items():
            if path in self.folders and not self.folders[path].created:
                yield
                self.folders[path].created = self.followed.get(path, created)
        self.followed = {}
        wanted = {path: entry.identity for path, entry in entries.items()}
        present = [
            Folder(place, folder.repository.identity, created=folder.created)
            for place, folder in self.folders.items()
        ]
        plan = follow_plan.plan(present, wanted, self.dynamic().purged, times)
        moves = [(folder.place, f"{AWAY}/{GONE}{folder.identity}") for folder in plan.delete]
        moves += [(folder.place, f"{AWAY}/{name}") for folder, name in plan.set_aside]
        moves += [(folder.place, f"{AWAY}/{folder.key}") for folder in plan.take_away]
        moves += [(f"{AWAY}/{folder.away or folder.key}", path) for folder, path in plan.put]
        for old, new in moves:
            yield
            assert new not in self.folders
            self.folders[new] = self.folders.pop(old)
        for place in [place for place in self.folders if place.startswith(f"{AWAY}/{GONE}")]:
            yield
            del self.folders[place]
        for path, entry in entries.items():
            if entry.identity and entry.archived is None and path not in self.folders:
                self.folders[path] = OnMirror(self.world.folders[path], 0)

    def pushes(self) -> None:
        """Apply the pushes of repositories at their paths, if the registry is current."""
        if parts_of(self.registry).dynamic != parts_of(nameless(self.world.registry)).dynamic:
            return
        for path, folder in self.folders.items():
            if self.world.folders.get(path) is folder.repository:
                folder.pushes = len(folder.repository.log)
        self.no_reader_sees_more_than_at_the_primary()

    def seen(self) -> Iterator[Seen]:
        """Yield each asker's pushes: an entry without identity shows the folder at its path."""
        for path, repository in parts_of(self.registry).registry.repositories.items():
            folder = self.folders.get(path)
            if folder is None or repository.identity not in ("", folder.repository.identity):
                continue
            for asker, person in (("stranger", None), ("staff", STAFF)):
                if may_read(repository, person):
                    own = folder.repository.identity
                    yield from ((asker, path, own, number + 1) for number in range(folder.pushes))

    def no_reader_sees_more_than_at_the_primary(self) -> None:
        """Ask for everything as each of them."""
        assert not self.is_new or not self.world.not_shown(self.seen())

    def teardown(self) -> None:
        """Update the primary: all folders are where it has them."""
        if not hasattr(self, "world"):
            return
        self.names_identities = True
        self.documents(None)
        for path in self.world.in_service():
            assert self.folders[path].repository is self.world.folders[path]
        for place in self.folders:
            if not place.startswith(AWAY):
                assert self.folders[place].repository is self.world.folders[place]


TestUpgrade = Upgrade.TestCase
TestUpgrade.settings = settings(
    max_examples=400,
    stateful_step_count=8,
    deadline=None,
    # The same runs each time, so that a failure comes again.
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

"""Names that are given again, against a model that knows who made each thing.

Hypothesis chooses who joins and leaves, the things that people make under this release and under a
release that wrote names only, and when the directory answers. After each step a thing is bound to
the person who made it or to no person, and belongs to its maker only, bound or not.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hgfleet.auth import token_file, token_sweep
from hgfleet.auth.tokens import Token
from hgfleet.core.errors import UnavailableError
from hgfleet.core.principal import Principal
from hgfleet.directory.person_state import PersonState
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.registry.model import registry
from hgfleet.registry.model.permissions import may_read
from hgfleet.selfservice.owner_binding import Binder
from testing.support.person_ids import entry_uuid

if TYPE_CHECKING:
    from hgfleet.core.principal import Owned

NAMES = ("alice", "bob")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
STEP_S = 7200.0
"""More than clocks differ."""

STATIC = registry.build(
    {}, {"people": registry.Namespace("people", "", create=("all",), personal=True)}
)


class Site(RuleBasedStateMachine):
    """A primary, its directory, and the truth about who made each thing."""

    @initialize()
    def begin(self) -> None:
        """Begin with a primary without repositories, and a person."""
        self._folder = tempfile.TemporaryDirectory(prefix="hgfleet-owners-")
        self.registry = str(Path(self._folder.name) / "registry.json")
        self.tokens = str(Path(self._folder.name) / "tokens.json")
        self.now, self.number, self.is_away = BEGIN, 0, False
        self.today: dict[str, str] = {NAMES[0]: entry_uuid(self.now, self.number)}
        self.made_by: dict[str, str] = {}
        """Person id by path of a repository, former path, or token."""
        more = (self.ask, lambda: None, lambda _line: None)
        self.sweeper = token_sweep.Sweeper(self.tokens, *more, clock=lambda: self.now)
        self.binder = Binder(self.registry, *more)

    def ask(self, name: str) -> PersonState:
        if self.is_away:
            raise UnavailableError("away")
        if name not in self.today:
            return PersonState("missing")
        return PersonState("enabled", person_id=self.today[name])

    def tick(self) -> str:
        self.now += STEP_S
        self.number += 1
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- people ---

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        self.tick()
        self.today.setdefault(name, entry_uuid(self.now, self.number))

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        self.tick()
        self.today.pop(name, None)

    @precondition(lambda self: self.today)
    @rule(data=st.data())
    def exchange(self, data: st.DataObject) -> None:
        """A person leaves, and another person gets the name."""
        name = data.draw(st.sampled_from(sorted(self.today)))
        self.leave(name)
        self.join(name)

    # --- things ---

    @precondition(lambda self: self.today)
    @rule(data=st.data(), knows_ids=st.booleans(), archived=st.booleans())
    def create(self, data: st.DataObject, knows_ids: bool, archived: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.today)))
        now, path = self.tick(), f"people/{name}/r{self.number}"
        own = self.today[name]
        entry = Entry(name, "", now, read=(), archived=now if archived else None)
        with dynamic_update.update(self.registry) as entries:
            entries[path] = entry if not knows_ids else Entry(name, "", now, (), owner_id=own)
        self.made_by[path] = own

    @precondition(lambda self: self.today)
    @rule(data=st.data(), knows_ids=st.booleans())
    def make_a_token(self, data: st.DataObject, knows_ids: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.today)))
        now, identity = self.tick(), f"token{self.number % 10}aa".translate(LETTERS)
        own = self.today[name]
        with token_file.update(self.tokens) as kept:
            if identity not in kept:
                times = now, "2099-01-01T00:00:00Z"
                kept[identity] = Token(
                    name, "ab" * 32, "", *times, owner_id=own if knows_ids else ""
                )
                self.made_by[identity] = own

    @precondition(lambda self: self.mine())
    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        now = self.tick()
        path = data.draw(st.sampled_from(self.mine()))
        new = f"{path.rpartition('/')[0]}/n{self.number}"
        with dynamic_update.update(self.registry) as entries:
            entry = entries[path]
            entries[new] = entry
            entries.note_rename(path, Rename(new, entry.owner, now, entry.owner_id))
            del entries[path]
        self.made_by[new] = self.made_by[path]

    @precondition(lambda self: self.today and self.paths())
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        self.tick()
        path = data.draw(st.sampled_from(self.paths()))
        name = data.draw(st.sampled_from(sorted(self.today)))
        with dynamic_update.update(self.registry) as entries:
            entry = entries[path]
            changed = Entry(name, "", entry.created, (), owner_id=self.today[name])
            entries[path] = changed
        self.made_by[path] = self.today[name]

    def paths(self) -> list[str]:
        return sorted(user_repositories.load(self.registry).repositories)

    def mine(self) -> list[str]:
        """Return repositories whose makers are still here."""
        return [path for path in self.paths() if self.made_by[path] in self.today.values()]

    # --- looks ---

    @rule(is_away=st.sampled_from([False, False, True]), hours=st.integers(0, 3))
    def look(self, is_away: bool, hours: int) -> None:
        self.is_away = is_away
        self.now += 3600 * hours
        self.sweeper.poll()
        self.binder.poll()
        if is_away:
            return
        dynamic = user_repositories.load(self.registry)
        for path, entry in dynamic.repositories.items():
            is_here = self.today.get(entry.owner) == self.made_by[path]
            assert entry.owner_id or not is_here, "whoever made it is known"
        for identity, token in token_file.load(self.tokens).items():
            is_here = self.today.get(token.owner) == self.made_by[identity]
            assert token.owner_id or not is_here, "whoever made it is known"

    # --- promises ---

    @invariant()
    def a_thing_is_bound_to_its_maker_or_to_none(self) -> None:
        dynamic = user_repositories.load(self.registry)
        for path, entry in dynamic.repositories.items():
            assert entry.owner_id in ("", self.made_by[path])
            repository = user_repositories.effective(path, entry, STATIC)
            for name, own in self.today.items():
                person = Principal(name, frozenset(), own)
                assert may_read(repository, person) == (own == self.made_by[path])
        for old, note in dynamic.renamed.items():
            self._is_of_its_maker(note, self.made_by[old])
        for identity, token in token_file.load(self.tokens).items():
            self._is_of_its_maker(token, self.made_by[identity])

    def _is_of_its_maker(self, owned: Owned, maker: str) -> None:
        assert owned.owner_id in ("", maker)
        for name, own in self.today.items():
            assert Principal(name, person_id=own).owns(owned) == (own == maker)

    def teardown(self) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


LETTERS = str.maketrans("0189", "abcd")
"""Ids of tokens are in base32."""

TestSite = Site.TestCase
TestSite.settings = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    # The same runs each time, so that a failure comes again.
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

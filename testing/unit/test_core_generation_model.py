"""A document that is written, restored and fetched in all orders: no mirror goes back in a term."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hgfleet.core import generation
from hgfleet.core.generation import Generation, Memory, Version

Changes = tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A document: its generation, and all changes that were made to it."""

    version: Version
    changes: Changes


class Documents(RuleBasedStateMachine):
    """A primary and a mirror. The content of a document is the list of its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count(1)
        self.epoch = 1
        self.memory = Memory()
        self.text = self.made(Memory(), ("first",))
        self.backups: list[tuple[Text, Memory]] = []
        self.former: list[Text] = []
        self.mirror: Text | None = None
        self.mirrored = Memory()
        self.taken: list[Text] = []
        self.write()

    @staticmethod
    def made(memory: Memory, changes: Changes) -> Text:
        digest = generation.digest(repr((memory.generation, changes)).encode())
        return Text(Version(memory.generation, digest, memory.past, memory.epoch), changes)

    def is_refused(self) -> bool:
        return generation.has_gone_back(self.memory, self.text.version)

    def next(self, changes: Changes) -> tuple[Memory, Text]:
        known = generation.known(self.memory, self.text.version)
        memory = generation.following(known, self.epoch)
        text = self.made(memory, changes)
        before = self.text.version.sha256
        return replace(memory, sha256=text.version.sha256, before=before), text

    @precondition(lambda self: not self.is_refused())
    @rule()
    def write(self) -> None:
        self.former.append(self.text)
        memory, self.text = self.next((*self.text.changes, f"{next(self.count)}"))
        self.memory = generation.settled(memory)

    @precondition(lambda self: not self.is_refused())
    @rule()
    def write_and_be_killed(self) -> None:
        self.memory, _ = self.next((*self.text.changes, f"{next(self.count)}"))

    @precondition(lambda self: not self.is_refused())
    @rule()
    def renew(self) -> None:
        known = generation.known(self.memory, self.text.version)
        if generation.is_due(known, self.text.version, self.epoch):
            memory, self.text = self.next(self.text.changes)
            self.memory = generation.settled(memory)

    @precondition(lambda self: not self.is_refused())
    @rule()
    def change_by_hand(self) -> None:
        """Or by a release before, which drops the generation, and with it what tells of its age."""
        changes = (*self.text.changes, f"hand {next(self.count)}")
        digest = generation.digest(repr(changes).encode())
        is_kept = next(self.count) % 2
        version = self.text.version._replace(sha256=digest) if is_kept else Version(None, digest)
        self.text = Text(version, changes)

    @rule()
    def back_up(self) -> None:
        self.backups.append((self.text, self.memory))

    @precondition(lambda self: self.backups)
    @rule(writes=st.integers(0, 3))
    def restore(self, writes: int) -> None:
        """Bring a backup with its memory; the primary writes on before a mirror looks."""
        self.text, self.memory = self.backups[0]
        self.backups.append(self.backups.pop(0))
        for _ in range(0 if self.is_refused() else writes):
            self.write()

    @precondition(lambda self: len(self.former) > 1)
    @rule()
    def put_an_older_one_in_place(self) -> None:
        older = self.former.pop(0)
        # The age of one without a generation is seen by its content alone (`auth/token_file.py`).
        if older.version.generation is not None:
            self.text = older

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def begin_term(self) -> None:
        known = generation.known(self.memory, self.text.version)
        begun = generation.following(known, self.epoch, begins=True)
        self.memory = replace(begun, before=self.text.version.sha256)
        memory, self.text = self.next(self.text.changes)
        self.memory = generation.settled(memory)

    def look(self, *, is_killed: bool) -> None:
        here = self.mirror.version if self.mirror is not None else None
        memory = generation.known(self.mirrored, here)
        there = self.text.version
        found = generation.decide(memory, there)
        if found.refused:
            self.mirrored = replace(memory, refused=found.refused, went_back=found.went_back)
            return
        if there.generation is not None:
            before = here.sha256 if here is not None else ""
            self.mirrored = Memory(there.generation, there.sha256, before, past=there.past)
        if not is_killed:
            self.mirrored = generation.settled(self.mirrored)
            self.mirror = self.text
            self.taken.append(self.text)

    @rule()
    def fetch(self) -> None:
        self.look(is_killed=False)

    @rule()
    def fetch_and_be_killed(self) -> None:
        self.look(is_killed=True)

    @invariant()
    def mirrors_go_forward(self) -> None:
        for before, after in itertools.pairwise(self.taken[-2:]):
            old, new = before.version.generation, after.version.generation
            if old is None:
                continue
            assert new is not None
            assert new >= old
            if new.term == old.term:
                assert after.changes[: len(before.changes)] == before.changes, (before, after)


TestDocuments = Documents.TestCase
TestDocuments.settings = settings(max_examples=400, stateful_step_count=30, deadline=None)


def test_the_model_has_generations() -> None:
    assert Documents().text.version.generation == Generation(1, 1)

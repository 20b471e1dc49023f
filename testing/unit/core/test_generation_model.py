"""A document that is written, restored and fetched in all orders: no mirror goes back in a term."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hgfleet.auth.token_file import Last, came_back
from hgfleet.auth.tokens import Token, Tokens, stamp_of
from hgfleet.core import generation
from hgfleet.core.generation import Generation, Memory, Version

Changes = tuple[str, ...]
BEGIN = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass(frozen=True)
class Text:
    """A document: its generation, and all changes that were made to it."""

    version: Version
    changes: Changes

    @property
    def tokens(self) -> Tokens:
        """Return the tokens of the file: each change makes a token and removes the token before."""
        made = BEGIN + timedelta(seconds=int(self.changes[-1].rpartition(" ")[2]))
        return {self.changes[-1]: Token("bob", "", "", stamp_of(made), "")}


class Documents(RuleBasedStateMachine):
    """A primary and a mirror. The content of a document is the list of its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count(1)
        self.epoch = 1
        self.memory = Memory()
        self.last: Last | None = None
        self.text = self.made(Memory(), ("0",))
        self.backups: list[tuple[Text, Memory, Last | None]] = []
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
        here = self.text.version
        return generation.has_gone_back(self.memory, here) or (
            generation.may_be_older(self.memory, here)
            and bool(came_back(self.last, self.text.tokens))
        )

    def put(self, memory: Memory, text: Text) -> None:
        self.memory, self.text = generation.settled(memory), text
        written = BEGIN + timedelta(seconds=next(self.count))
        self.last = Last(frozenset(text.tokens), written)

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
        self.put(*self.next((*self.text.changes, f"{next(self.count)}")))

    @precondition(lambda self: not self.is_refused())
    @rule()
    def write_and_be_killed(self) -> None:
        self.memory, _ = self.next((*self.text.changes, f"{next(self.count)}"))

    @precondition(lambda self: not self.is_refused())
    @rule()
    def renew(self) -> None:
        known = generation.known(self.memory, self.text.version)
        if generation.is_due(known, self.text.version, self.epoch):
            self.put(*self.next(self.text.changes))

    @precondition(lambda self: not self.is_refused())
    @rule()
    def change_by_hand(self) -> None:
        """Change by hand, or by a release before, which drops the generation."""
        changes = (*self.text.changes, f"hand {next(self.count)}")
        digest = generation.digest(repr(changes).encode())
        is_kept = next(self.count) % 2
        version = self.text.version._replace(sha256=digest) if is_kept else Version(None, digest)
        self.text = Text(version, changes)

    @rule()
    def back_up(self) -> None:
        self.backups.append((self.text, self.memory, self.last))

    @precondition(lambda self: self.backups)
    @rule(writes=st.integers(0, 3))
    def restore(self, writes: int) -> None:
        """Bring a backup with its memory; the primary writes on before a mirror looks."""
        self.text, self.memory, self.last = self.backups[0]
        self.backups.append(self.backups.pop(0))
        for _ in range(0 if self.is_refused() else writes):
            self.write()

    @precondition(lambda self: len(self.former) > 1)
    @rule(ago=st.integers(0, 3))
    def put_an_older_one_in_place(self, ago: int) -> None:
        self.text = self.former.pop(-1 - ago % len(self.former))

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def begin_term(self) -> None:
        known = generation.known(self.memory, self.text.version)
        begun = generation.following(known, self.epoch, begins=True)
        self.memory = replace(begun, before=self.text.version.sha256)
        self.put(*self.next(self.text.changes))

    def look(self, *, is_killed: bool) -> None:
        here = self.mirror.version if self.mirror is not None else None
        memory = generation.known(self.mirrored, here)
        there = self.text.version
        decision = generation.decide(memory, there)
        if decision.refused:
            self.mirrored = replace(memory, refused=decision.refused, went_back=decision.went_back)
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


def test_the_model_goes_back_by_one() -> None:
    documents = Documents()
    documents.write()
    documents.fetch()
    documents.put_an_older_one_in_place(ago=0)
    assert documents.is_refused()
    # The files of a killed writer are not refused.
    documents.begin_term()
    documents.write_and_be_killed()
    assert not documents.is_refused()

"""People change their repositories in any order while a mirror is away, begins, or is killed.

After each step of the mirror, a stranger, a member of a group, the owner, a later person of the
owner's name and the holder of each token ask it for every repository and for its clone bundles:
none of them gets a push at a path where the primary never showed it to them. When the faults end,
the mirror is equal, and nothing is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hgfleet.replication.mirror.failures import PARKED_SECONDS, Kind
from hgfleet.replication.mirror.follow_plan import AWAY
from hgfleet.replication.mirror.repository_state import Status
from testing.support.identity_changes import carry_out, changes
from testing.support.identity_world import World
from testing.unit.replication.identity_model import Mirror

if TYPE_CHECKING:
    from testing.support.identity_changes import Change

    MirrorStep = tuple[str, int, Change]
    """Kind, a number, and a change that people make while documents come."""

FAULTS: Final = (Kind.NETWORK, Kind.REFUSED, Kind.BUSY)
ROUNDS: Final = 12

STEPS: Final = (
    *("well", "documents", "killed", "receive", "one message", "again", "work", "fault"),
    *("compare", "source", "restart", "wait", "meanwhile"),
)
numbers = st.integers(0, 7)
steps = st.tuples(st.sampled_from(STEPS), numbers, changes())


class Identities(RuleBasedStateMachine):
    """A primary and a mirror."""

    def __init__(self) -> None:
        super().__init__()
        self.primary = World()
        self.begin_anew()

    @initialize(private=st.booleans())
    def begin(self, private: bool) -> None:
        """A repository that the mirror shows."""
        carry_out(self.primary, ("create", 0, 0, () if private else "public"))
        carry_out(self.primary, ("push", 0, 0, ()))
        self._step("well", 0, None)

    @rule(
        made=st.lists(changes(), min_size=1, max_size=4),
        done=st.lists(steps, min_size=1, max_size=4),
    )
    def people_and_the_mirror(self, made: list[Change], done: list[MirrorStep]) -> None:
        """Change repositories while the mirror hears of nothing; then it works, with faults."""
        for change in made:
            carry_out(self.primary, change)
        for kind, number, change in done:
            self._step(kind, number, change)
            self.no_reader_sees_more_than_at_the_primary()

    def _step(self, kind: str, number: int, change: Change | None) -> None:
        mirror = self.mirror
        match kind:
            case "well":
                mirror.source_is_up = True
                mirror.documents()
                self._work_off()
            case "documents":
                mirror.documents()
            case "killed":
                # The applier that begins next has a registry that its folders do not follow yet.
                mirror.documents(number)
                if number % 2:
                    self._work_off()
            case "meanwhile" if change is not None:
                mirror.documents(
                    meanwhile=lambda at: carry_out(self.primary, change) if at == number else None
                )
            case "receive":
                self._work_off()
            case "one message":
                for first in mirror.to_deliver()[number % 3 :][:1]:
                    mirror.deliver(first)
            case "again" if self.primary.stream:
                mirror.deliver(number % len(self.primary.stream))
            case "work" | "fault":
                mirror.work(FAULTS[number % len(FAULTS)] if kind == "fault" else None)
            case "compare":
                mirror.compare()
            case "source":
                mirror.source_is_up = number % 2 > 0
            case "restart":
                mirror.start()
            case "wait":
                mirror.now += 2.0**number
            case _:
                pass

    def _work_off(self) -> None:
        for number in self.mirror.to_deliver():
            self.mirror.deliver(number)
        while self.mirror.work():
            pass

    @precondition(lambda self: self.primary.stream[2:])
    @rule()
    def begin_anew(self) -> None:
        """A new host, which has nothing and gets all messages of the stream."""
        self.mirror = Mirror(self.primary)
        self.mirror.check = self.no_reader_sees_more_than_at_the_primary

    def no_reader_sees_more_than_at_the_primary(self) -> None:
        """Ask for everything as each of them."""
        assert not self.primary.not_shown(self.mirror.seen())

    def teardown(self) -> None:
        """End all faults: the mirror becomes equal."""
        mirror, primary = self.mirror, self.primary
        mirror.source_is_up = True
        done = Status(caught_up=True, waiting=0, parked={}, waits={}, unserved=frozenset())
        for _ in range(ROUNDS):
            mirror.documents()
            mirror.compare()
            self._work_off()
            if mirror.scheduler.status(mirror.now) == done:
                break
            mirror.now += PARKED_SECONDS + 1
        assert mirror.scheduler.status(mirror.now) == done
        for path in primary.in_service():
            assert mirror.folders[path] == primary.folders[path]
        entries = primary.dynamic.repositories
        for place, repository in mirror.folders.items():
            assert not place.startswith(AWAY)
            assert entries[place].identity == repository.identity
        assert mirror.seen() == set(primary.seen(primary.host()))
        assert set(range(len(primary.stream))) <= mirror.acknowledged


TestIdentities = Identities.TestCase
TestIdentities.settings = settings(
    max_examples=600,
    stateful_step_count=12,
    deadline=None,
    # The same runs each time, so that a failure comes again.
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

"""People change their repositories in any order while a mirror is away, begins, or is killed.

After each step of the mirror, a stranger, a member of a group and the owner ask it for every
repository: none of them gets a push at a path where the primary never showed it to them. When the
faults end, the mirror is equal, and nothing is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hgfleet.replication.failures import PARKED_SECONDS, Kind
from hgfleet.replication.follow_plan import AWAY
from hgfleet.replication.repository_state import Status
from testing.unit.identity_model import CREATED, READS, Mirror, Primary, seen

if TYPE_CHECKING:
    from hgfleet.registry.model import Read

    Change = tuple[str, int, int, Read]

PATHS: Final = ("a", "b", "c/d")
FAULTS: Final = (Kind.NETWORK, Kind.REFUSED, Kind.BUSY)
ROUNDS: Final = 12

CHANGES: Final = (
    *("create", "push", "rename", "readers", "archive", "restore", "delete"),
    *("move and make again", "delete and make again"),
)
STEPS: Final = (
    *("well", "documents", "killed", "receive", "one message", "again", "work", "fault"),
    *("compare", "source", "restart", "wait"),
)
numbers = st.integers(0, 7)


class Identities(RuleBasedStateMachine):
    """One primary, and a mirror."""

    def __init__(self) -> None:
        super().__init__()
        self.primary = Primary()
        self.begin_anew()

    @initialize(private=st.booleans())
    def begin(self, private: bool) -> None:
        """A repository that the mirror shows."""
        self._change(("create", 0, 0, () if private else "public"))
        self._change(("push", 0, 0, ()))
        self._step("well", 0)

    @rule(
        changes=st.lists(
            st.tuples(st.sampled_from(CHANGES), numbers, numbers, st.sampled_from(READS)),
            min_size=1,
            max_size=6,
        )
    )
    def people(self, changes: list[Change]) -> None:
        """Change repositories while the mirror hears of nothing."""
        for change in changes:
            self._change(change)

    def _change(self, change: Change) -> None:
        kind, number, other, read = change
        primary = self.primary
        free = [path for path in PATHS if path not in primary.folders]
        among = {
            "create": free,
            "restore": primary.archived(),
            "delete": sorted(primary.folders),
            "delete and make again": sorted(primary.folders),
        }.get(kind, primary.in_service())
        if not among or (kind == "rename" and not free):
            return
        path = among[number % len(among)]
        match kind:
            case "create":
                primary.create(path, read)
            case "push":
                primary.push(path)
            case "rename":
                primary.rename(path, free[other % len(free)])
            case "readers":
                primary.set(path, read=read)
            case "archive" | "restore":
                primary.set(path, archived=CREATED if kind == "archive" else None)
            case "delete":
                primary.delete(path)
            case _:
                self._change(("rename" if kind.startswith("move") else "delete", number, other, ()))
                if path not in primary.folders:
                    primary.create(path, read)
                    primary.push(path)

    @rule(steps=st.lists(st.tuples(st.sampled_from(STEPS), numbers), min_size=1, max_size=6))
    def run_the_mirror(self, steps: list[tuple[str, int]]) -> None:
        """Have the mirror work, with faults."""
        for kind, number in steps:
            self._step(kind, number)
            self.no_reader_sees_more_than_at_the_primary()

    def _step(self, kind: str, number: int) -> None:
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
                mirror.documents(number % 4)
                if number >= 4:
                    self._work_off()
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

    @rule()
    def begin_anew(self) -> None:
        """A new host, which has nothing and gets all messages of the stream."""
        self.mirror = Mirror(self.primary)
        self.mirror.check = self.no_reader_sees_more_than_at_the_primary

    def no_reader_sees_more_than_at_the_primary(self) -> None:
        """Ask for everything as each of them."""
        assert self.mirror.seen() <= self.primary.shown

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
        for place, one in mirror.folders.items():
            assert not place.startswith(AWAY)
            assert entries[place].identity == one.identity
        assert mirror.seen() == set(seen(primary.dynamic, primary.folders))
        assert set(range(len(primary.stream))) <= mirror.acknowledged


TestIdentities = Identities.TestCase
TestIdentities.settings = settings(
    max_examples=400,
    stateful_step_count=12,
    deadline=None,
    # The same runs each time: a failure of one run is that of the next.
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

"""Relay and applier under random faults, against a model: a mirror ends as the primary is.

Hypothesis chooses pushes, deliveries and faults. After each step the mirror is a beginning of the
primary; when the faults end, nothing is missing, parked or unacknowledged.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hgfleet.replication.mirror.failures import PARKED_SECONDS, Kind
from hgfleet.replication.protocol import messages
from testing.unit.replication.replication_model import Mirror, Primary, Relay, Stream

REPOSITORIES = 3

FAULTS = (
    *(Kind.NETWORK, Kind.REFUSED, Kind.BUSY, Kind.HOST, Kind.READERS, Kind.MISSING),
    *(Kind.CORRUPTION, Kind.POISON),
)
ROUNDS = 40
"""Rounds of deliveries and work; each is long enough for every delay between tries."""

repositories = st.integers(0, REPOSITORIES - 1)


class Replication(RuleBasedStateMachine):
    """A primary, a broker and a mirror."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="hgfleet-model-")

    has_comparisons = True
    """Whether there are faults after which a mirror compares itself with the primary."""

    @initialize(pushes=st.lists(st.tuples(repositories, st.booleans()), min_size=1, max_size=12))
    def begin(self, pushes: list[tuple[int, bool]]) -> None:
        top = Path(self._folder.name)
        self.primary = Primary(top / "repos", REPOSITORIES)
        self.stream = Stream()
        self.relay = Relay(self.primary, self.stream, top / "relay")
        self.mirror = Mirror(self.primary, self.stream)
        for repository, is_large in pushes:
            self.primary.push(repository, is_large=is_large)

    # --- pushes, and the relay ---

    @rule(repository=repositories, count=st.integers(1, 5), is_large=st.booleans())
    def push(self, repository: int, count: int, is_large: bool) -> None:
        for _ in range(count):
            self.primary.push(repository, is_large=is_large)

    @rule(
        repository=repositories,
        failures=st.lists(st.sampled_from(["", "refused", "unacknowledged"]), max_size=4),
    )
    def publish(self, repository: int, failures: list[str]) -> None:
        self.stream.failures = failures
        self.relay.publish(repository)
        self.stream.failures = []

    @rule(with_its_state=st.booleans())
    def kill_the_relay(self, with_its_state: bool) -> None:
        self.relay.kill(with_its_state=with_its_state)

    # --- the broker ---

    @precondition(lambda self: self.has_comparisons)
    @rule(count=st.integers(1, 4), is_whole=st.booleans())
    def lose_messages(self, count: int, is_whole: bool) -> None:
        if is_whole:
            self.stream.renew()
        else:
            self.stream.lose_last(count)
        # Sequence numbers are given again: to the mirror it is another stream.
        self.mirror.acknowledged.clear()
        self.mirror.delivered.clear()
        self.relay.disconnect()

    @precondition(lambda self: self.mirror.to_deliver())
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """In any order: a message that is delivered again comes late."""
        self.mirror.deliver(data.draw(st.sampled_from(self.mirror.to_deliver())))

    @precondition(lambda self: self.mirror.delivered)
    @rule()
    def deliver_again(self) -> None:
        for handle in sorted(self.mirror.delivered - self.mirror.acknowledged):
            if handle[0] == self.stream.created and handle[1] in self.stream.messages:
                self.mirror.deliver(handle[1])

    # --- the mirror ---

    @rule(fault=st.none() | st.sampled_from(FAULTS), after=st.integers(0, 3))
    def work(self, fault: Kind | None, after: int) -> None:
        self.mirror.work(fault, after)

    @precondition(lambda self: self.has_comparisons)
    @rule(after=st.integers(0, 3))
    def kill_the_applier_at_work(self, after: int) -> None:
        """Records that a worker applied stay, and no message of the job is acknowledged."""
        job = self.mirror.scheduler.next_job(self.mirror.now)
        if job is not None:
            self.mirror.run(job, Kind.HOST, after)
        self.mirror.start()

    @rule(is_up=st.booleans())
    def source(self, is_up: bool) -> None:
        self.mirror.source_is_up = is_up

    @precondition(lambda self: self.has_comparisons and self.mirror.source_is_up)
    @rule()
    def compare(self) -> None:
        self.mirror.compare()

    @rule(seconds=st.floats(0.1, 60))
    def wait(self, seconds: float) -> None:
        self.mirror.now += seconds

    # --- the promises ---

    @invariant()
    def the_mirror_is_a_beginning_of_the_primary(self) -> None:
        for number, log in getattr(self, "mirror", Empty).logs.items():
            assert log == self.primary.logs[number][: len(log)]

    @invariant()
    def a_push_is_in_the_stream_once(self) -> None:
        if hasattr(self, "stream"):
            ids = [kept[2][messages.MESSAGE_ID_HEADER] for kept in self.stream.messages.values()]
            assert len(ids) == len(set(ids))

    @invariant()
    def an_acknowledged_push_is_shown_or_the_source_is_asked(self) -> None:
        if not hasattr(self, "mirror"):
            return
        entries = self.mirror.scheduler._entries
        for created, sequence in self.mirror.acknowledged:
            kept = self.stream.messages.get(sequence)
            if created != self.stream.created or kept is None:
                continue
            named = messages.named(kept[2])
            assert named is not None
            identity, number, _epoch = named
            log = self.mirror.logs[int(identity, 16) - 1]
            # An applier that has started again finds out when it compares itself with the primary.
            entry = entries.get(identity)
            is_open = not self.mirror.scheduler.compared and self.has_comparisons
            is_known = entry is not None and (entry.is_behind() or entry.is_parked)
            assert number <= len(log) or is_open or is_known

    def teardown(self) -> None:
        """End all faults: everything arrives, and nothing is left to do."""
        try:
            if hasattr(self, "mirror"):
                self._converge()
        finally:
            self._folder.cleanup()

    def _converge(self) -> None:
        mirror, stream = self.mirror, self.stream
        mirror.source_is_up = True
        for number in range(REPOSITORIES):
            assert self.relay.publish(number)
        if self.has_comparisons:
            mirror.compare()
        for _ in range(ROUNDS):
            for sequence in mirror.to_deliver():
                mirror.deliver(sequence)
            while mirror.work():
                pass
            mirror.now += PARKED_SECONDS + 1
        assert mirror.logs == self.primary.logs
        mirror.compare()
        assert mirror.scheduler.status(mirror.now) == (True, 0, {}, {}, frozenset(), 0)
        assert {(stream.created, message) for message in stream.messages} <= mirror.acknowledged
        for number, log in self.primary.logs.items():
            known = [messages.named(kept[2]) for kept in stream.messages.values()]
            assert not log or (f"{number + 1:032x}", len(log), 1) in known


class Empty:
    """Before the first step."""

    logs: dict[int, list[bytes]] = {}  # noqa: RUF012


class ReplicationByMessages(Replication):
    """No comparison repairs anything: only messages bring the mirror there."""

    has_comparisons = False


SETTINGS = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    # The same runs each time, so that a failure comes again.
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

TestReplication = Replication.TestCase
TestReplication.settings = SETTINGS
TestReplicationByMessages = ReplicationByMessages.TestCase
TestReplicationByMessages.settings = SETTINGS

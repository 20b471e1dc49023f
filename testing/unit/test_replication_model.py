"""Applier and stream as a random machine: under any order of faults, mirrors end up equal.

The machine has a primary's push logs, a stream that loses, repeats and reorders messages, a source
that is away at times, workers that fail, and an applier that is killed. Its workers decide as the
real ones do (`position.decide`), on logs in memory.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

import pytest

from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of, parse
from hgfleet.replication.failures import PARKED_SECONDS, Failure, Kind
from hgfleet.replication.jobs import Job, Place, Result
from hgfleet.replication.messages import PushMessage
from hgfleet.replication.position import Step, decide
from hgfleet.replication.scheduler import Scheduler

REPOSITORIES: Final = 4
STEPS: Final = 1500
HEADS: Final = Heads(digest="00" * 32)
BROKEN: Final = f"{REPOSITORIES - 1:032x}"
"""A repository of which the mirror has another history, where the machine says so."""


def tip_of(log: list[bytes]) -> Tip:
    if not log:
        return Tip()
    last = parse(log[-1])
    return Tip(last.id, hash_of(log[-1]), last.repository, 0, last.epoch)


class Machine:
    def __init__(self, seed: int, *, broken: bool = False, lonely: bool = False) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.primary: dict[str, list[bytes]] = {f"{n:032x}": [] for n in range(REPOSITORIES)}
        self.mirror: dict[str, list[bytes]] = {name: [] for name in self.primary}
        self.stream: dict[int, PushMessage] = {}
        """Messages that are not acknowledged, by their number in the stream."""
        self.sent = 0
        self.lonely = lonely
        """The primary is gone for good, and its stream is whole."""
        self.source_is_up = not lonely
        self.worker_fails: Kind | None = None
        self.running: list[Job] = []
        self.applied = 0
        if broken:
            own = Record(1, BROKEN, "push", "mirror", 1, FIRST, heads=HEADS)
            self.mirror[BROKEN].append(own.line())
        self.scheduler = Scheduler()

    def push(self) -> None:
        name = self.random.choice(sorted(self.primary))
        log = self.primary[name]
        tip = tip_of(log)
        record = Record(tip.id + 1, name, "push", "alice", self.sent, tip.hash, heads=HEADS)
        log.append(record.line())
        self.sent += 1
        if self.lonely or self.random.random() > 0.05:
            self.stream[self.sent] = PushMessage(f"r{name}", record.line(), record, b"x")

    def deliver(self) -> None:
        """Deliver any message that is not acknowledged: again, late, in any order."""
        if self.stream:
            number = self.random.choice(sorted(self.stream)[:20])
            message = self.stream[number]
            if not self.lonely and self.random.random() < 0.02:
                forged = replace(message.record, user="mallory", previous="ab" * 32)
                message = PushMessage(message.path, forged.line(), forged, b"x")
            self.acknowledge(self.scheduler.offer(message, number, self.now))

    def acknowledge(self, numbers: list[int]) -> None:
        for number in numbers:
            # Some acknowledgements are lost.
            if self.random.random() > 0.1:
                self.stream.pop(number, None)

    def begin(self) -> None:
        if len(self.running) < 2 and (job := self.scheduler.next_job(self.now)) is not None:
            assert job.identity not in {one.identity for one in self.running}
            self.running.append(job)

    def end(self) -> None:
        if not self.running:
            return
        job = self.running.pop(self.random.randrange(len(self.running)))
        result = self.work(job)
        self.acknowledge(self.scheduler.finished(job, result, self.now).acknowledge)

    def work(self, job: Job, kill_after: int = 1000) -> Result:
        """Do a job as a worker does."""
        log = self.mirror[job.identity]
        failure = None
        try:
            for line, _ in job.messages[:kill_after]:
                self.apply(job, line)
            if job.up_to_date:
                self.catch_up(job)
        except FailureError as problem:
            failure = Failure(problem.kind, "as the machine has it")
        return Result(tip_of(log), failure)

    def apply(self, job: Job, line: bytes) -> None:
        if self.worker_fails is not None and self.random.random() < 0.5:
            raise FailureError(self.worker_fails)
        log = self.mirror[job.identity]
        step = decide(tip_of(log), parse(line), line).step
        if step is Step.GAP:
            self.catch_up(job)
            step = decide(tip_of(log), parse(line), line).step
        if step is Step.DIVERGED:
            raise FailureError(Kind.DIVERGED)
        if step is Step.APPLY:
            log.append(line)
            self.applied += 1

    def catch_up(self, job: Job) -> None:
        if not self.source_is_up:
            raise FailureError(Kind.NETWORK)
        log = self.mirror[job.identity]
        for line in self.primary[job.identity][tip_of(log).id :]:
            if decide(tip_of(log), parse(line), line).step is not Step.APPLY:
                raise FailureError(Kind.DIVERGED)
            log.append(line)
            self.applied += 1

    def compare(self) -> None:
        if not self.source_is_up:
            return
        here = {n: Place(f"r{n}", tip_of(log)) for n, log in self.mirror.items() if log}
        tips = {name: tip_of(log) for name, log in self.primary.items() if log}
        listed = [(f"r{name}", name, tip.id, tip.hash) for name, tip in tips.items()]
        self.acknowledge(self.scheduler.compare(listed, here, self.now))

    def kill(self) -> None:
        """Kill the applier; what its workers were at is done in part."""
        for job in self.running:
            self.work(job, self.random.randrange(3))
        self.running = []
        self.scheduler = Scheduler()
        self.compare()

    def fault(self) -> None:
        self.source_is_up = not self.lonely and self.random.random() > 0.4
        kinds = [None, None, Kind.BUSY, Kind.HOST]
        self.worker_fails = self.random.choice(kinds if self.lonely else [*kinds, Kind.POISON])

    def time(self) -> None:
        self.now += self.random.choice((0.01, 0.5, 5.0, 60.0))

    def check(self) -> None:
        """Nothing on the mirror but the primary's records, each once and in order."""
        for name, log in self.mirror.items():
            if name != BROKEN or not log or b"mirror" not in log[0]:
                assert log == self.primary[name][: len(log)]

    def settle(self) -> None:
        """Have the network, the source and the workers be well for half an hour."""
        self.source_is_up, self.worker_fails = not self.lonely, None
        for _round in range(60):
            self.compare()
            for _number in range(30):
                self.deliver()
                self.begin()
                self.end()
            self.now += PARKED_SECONDS / 10


class FailureError(Exception):
    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


def run(machine: Machine) -> None:
    steps = (
        *(machine.push, machine.push, machine.deliver, machine.deliver, machine.deliver),
        *(machine.begin, machine.end, machine.begin, machine.end, machine.time),
    )
    for _number in range(STEPS):
        machine.random.choice(steps)()
        if machine.random.random() < 0.02:
            machine.random.choice((machine.kill, machine.fault, machine.compare))()
        machine.check()
    machine.settle()
    machine.check()


@pytest.mark.parametrize("seed", range(20))
def test_at_the_end_the_mirror_has_every_record_once(seed: int) -> None:
    machine = Machine(seed)
    run(machine)
    assert machine.mirror == machine.primary
    assert machine.applied == sum(len(log) for log in machine.primary.values())
    assert machine.scheduler.parked() == {}
    assert machine.scheduler.caught_up
    assert machine.scheduler.waiting == 0
    assert machine.stream == {}


@pytest.mark.parametrize("seed", range(10))
def test_a_mirror_with_another_history_is_parked_and_left_alone(seed: int) -> None:
    machine = Machine(seed, broken=True)
    own = list(machine.mirror[BROKEN])
    run(machine)
    assert machine.mirror.pop(BROKEN) == own
    machine.primary.pop(BROKEN)
    assert machine.mirror == machine.primary
    assert list(machine.scheduler.parked()) == [f"r{BROKEN}"]


@pytest.mark.parametrize("seed", range(20))
def test_the_stream_alone_brings_every_push_when_the_primary_is_gone(seed: int) -> None:
    machine = Machine(seed, lonely=True)
    run(machine)
    assert machine.mirror == machine.primary
    assert machine.scheduler.parked() == {}

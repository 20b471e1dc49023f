from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Record
from hgfleet.replication.failures import PARKED_SECONDS, Failure, Kind
from hgfleet.replication.jobs import Job, Place, Result, Task
from hgfleet.replication.messages import PushMessage
from hgfleet.replication.scheduler import BATCH_MESSAGES, MOST_PENDING, Scheduler

if TYPE_CHECKING:
    from hgfleet.replication.scheduler import Outcome


def identity(number: int = 0) -> str:
    return f"{number:032x}"


def push(number: int, repository: int = 0, path: str = "") -> PushMessage:
    record = Record(
        number, identity(repository), "push", "alice", 1, FIRST if number == 1 else "ab" * 32
    )
    return PushMessage(path or f"r{repository}", record.line(), record, b"changesets")


def done(job: Job, tip: int, failure: Kind | None = None) -> Result:
    return Result(
        Tip(tip, "cd" * 32, job.identity), failure and Failure(failure, f"it is {failure}")
    )


def take(scheduler: Scheduler, now: float = 0.0) -> Job:
    job = scheduler.next_job(now)
    assert job is not None
    return job


def fail(scheduler: Scheduler, kind: Kind, now: float = 0.0, tip: int = 0) -> Outcome:
    return scheduler.finished(job := take(scheduler, now), done(job, tip, kind), now)


def test_pushes_of_a_repository_are_one_job_at_a_time_in_order() -> None:
    scheduler = Scheduler()
    for number in (2, 1, 3):
        assert scheduler.offer(push(number), number, 0.0) == []
    job = take(scheduler)
    assert [line for line, _ in job.messages] == [push(n).line for n in (1, 2, 3)]
    assert scheduler.next_job(0.0) is None
    scheduler.offer(push(4), 4, 0.0)
    assert scheduler.next_job(0.0) is None
    outcome = scheduler.finished(job, done(job, 3), 0.0)
    assert sorted(outcome.acknowledge) == [1, 2, 3]
    assert outcome.shown == 3
    assert take(scheduler).messages == ((push(4).line, b"changesets"),)


def test_repositories_are_independent() -> None:
    scheduler = Scheduler()
    for repository in (1, 2):
        scheduler.offer(push(1, repository), repository, 0.0)
    assert {take(scheduler).path, take(scheduler).path} == {"r1", "r2"}


def test_a_job_is_bounded() -> None:
    scheduler = Scheduler()
    for number in range(1, MOST_PENDING + 1):
        scheduler.offer(push(number), number, 0.0)
    assert len(take(scheduler).messages) == BATCH_MESSAGES


def test_messages_beyond_the_bound_are_left_to_the_source() -> None:
    scheduler = Scheduler()
    for number in range(2, MOST_PENDING + 2):
        assert scheduler.offer(push(number), number, 0.0) == []
    assert scheduler.offer(push(200), "late", 0.0) == ["late"]
    assert not scheduler.caught_up
    assert scheduler.waiting == MOST_PENDING


def test_a_seen_push_is_acknowledged_at_once() -> None:
    scheduler = Scheduler()
    scheduler.here({identity(): Place("r0", Tip(5, "ab" * 32, identity()))}, 0.0)
    assert scheduler.offer(push(5), "seen", 0.0) == ["seen"]
    assert scheduler.next_job(0.0) is None


def test_a_message_that_is_delivered_again_is_one_push() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1), "first", 0.0)
    scheduler.offer(push(1), "again", 0.0)
    job = take(scheduler)
    assert len(job.messages) == 1
    assert scheduler.finished(job, done(job, 1), 0.0).acknowledge == ["again"]


def test_two_records_of_one_number_leave_the_decision_to_the_chain() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1), "one", 0.0)
    other = push(1)
    record = replace(other.record, user="bob")
    assert scheduler.offer(replace(other, line=record.line(), record=record), "two", 0.0) == ["two"]
    job = take(scheduler)
    scheduler.finished(job, done(job, 1), 0.0)
    assert take(scheduler).up_to_date


def test_a_push_that_the_chain_passes_over_is_acknowledged() -> None:
    scheduler = Scheduler()
    scheduler.here({identity(): Place("r0", Tip(2, "ab" * 32, identity(), epoch=2))}, 0.0)
    scheduler.offer(push(7), "of a former primary", 0.0)
    job = take(scheduler)
    assert scheduler.finished(job, done(job, 2), 0.0).acknowledge == ["of a former primary"]
    assert scheduler.next_job(0.0) is None


def test_while_the_source_is_away_nothing_is_parked_and_other_repositories_go_on() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(3, 1), "gap", 0.0)
    now = 0.0
    for _try in range(20):
        fail(scheduler, Kind.NETWORK, now)
        scheduler.offer(push(_try + 1, 2), _try, now)
        job = take(scheduler, now)
        assert job.path == "r2"
        scheduler.finished(job, done(job, _try + 1), now)
        assert not scheduler.caught_up
        time = scheduler.next_time()
        assert time is not None
        assert now < time <= now + 15.0
        now = time
    assert scheduler.parked() == {}
    job = take(scheduler, now)
    scheduler.finished(job, done(job, 3), now)
    job = take(scheduler, now)
    assert job.up_to_date
    scheduler.finished(job, done(job, 3), now)
    assert scheduler.next_job(now) is None


def test_many_repositories_that_are_behind_do_not_all_ask_a_source_that_is_away() -> None:
    scheduler = Scheduler()
    scheduler.compare([(f"r{n}", identity(n), 1, "ab" * 32) for n in range(1000)], {}, 0.0)
    fail(scheduler, Kind.NETWORK)
    assert scheduler.next_job(0.0) is None
    asked = 0
    for now in range(1, 301):
        while (job := scheduler.next_job(float(now))) is not None:
            scheduler.finished(job, done(job, 0, Kind.NETWORK), float(now))
            asked += 1
    assert asked < 60


def test_a_poisoned_push_parks_its_repository_and_names_it() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1, 1), "poison", 0.0)
    assert fail(scheduler, Kind.POISON).parked == ""
    outcome = fail(scheduler, Kind.POISON, 1.0)
    assert outcome.parked == "it is poison"
    assert outcome.acknowledge == ["poison"]
    assert scheduler.parked() == {"r1": "it is poison; hgfleet replication resync r1"}
    assert scheduler.offer(push(2, 1), "next", 1.0) == ["next"]
    assert scheduler.next_job(1.0 + PARKED_SECONDS / 2) is None


def test_a_parked_repository_is_tried_again_and_leaves_the_list() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1, 1), "x", 0.0)
    fail(scheduler, Kind.DIVERGED)
    assert scheduler.parked()
    now = PARKED_SECONDS
    assert fail(scheduler, Kind.DIVERGED, now).parked == ""
    job = take(scheduler, 2 * now)
    assert job.up_to_date
    scheduler.finished(job, done(job, 7), 2 * now)
    assert scheduler.parked() == {}
    assert scheduler.offer(push(7, 1), "seen", now) == ["seen"]


def test_a_corrupt_repository_is_repaired_and_then_brought_up_to_date() -> None:
    scheduler = Scheduler(can_repair=True)
    scheduler.offer(push(2), "x", 0.0)
    fail(scheduler, Kind.CORRUPTION, tip=1)
    time = scheduler.next_time()
    assert time is not None
    job = take(scheduler, time)
    assert job.task is Task.REPAIR
    scheduler.finished(job, done(job, 2), time)
    job = take(scheduler, time)
    assert job.up_to_date
    scheduler.finished(job, done(job, 2), time)
    assert scheduler.next_job(time) is None


def test_a_failing_host_pauses_all_repositories_and_resumes() -> None:
    scheduler = Scheduler()
    for repository in range(20):
        scheduler.offer(push(1, repository), repository, 0.0)
    for _number in range(5):
        fail(scheduler, Kind.HOST)
    assert scheduler.breaker.is_open
    assert scheduler.next_job(0.0) is None
    time = scheduler.next_time()
    assert time is not None
    job = take(scheduler, time)
    assert scheduler.next_job(time) is None
    scheduler.finished(job, done(job, 1), time)
    assert scheduler.next_job(time) is not None
    assert scheduler.next_job(time) is not None


def test_a_mirror_has_caught_up_when_all_that_was_behind_has() -> None:
    scheduler = Scheduler()
    assert not scheduler.caught_up
    here = {identity(1): Place("r1", Tip(4, "ab" * 32, identity(1)))}
    listed = [
        ("r1", identity(1), 4, "ab" * 32),
        ("r2", identity(2), 3, "cd" * 32),
        ("r3", "", 0, ""),
    ]
    scheduler.compare(listed, here, 0.0)
    assert not scheduler.caught_up
    job = take(scheduler)
    assert (job.path, job.up_to_date) == ("r2", True)
    assert scheduler.next_job(0.0) is None
    scheduler.finished(job, done(job, 3), 0.0)
    assert scheduler.caught_up


def test_a_mirror_that_has_more_or_other_than_the_primary_is_parked() -> None:
    scheduler = Scheduler()
    here = {identity(n): Place(f"r{n}", Tip(4, "ab" * 32, identity(n))) for n in (1, 2)}
    scheduler.compare(
        [("r1", identity(1), 3, "00" * 32), ("r2", identity(2), 4, "00" * 32)], here, 0.0
    )
    assert scheduler.parked() == {
        "r1": "the mirror has record 4, and the primary's last is 3; hgfleet replication resync r1",
        "r2": "record 4 is abababababab here and 000000000000 there; hgfleet replication resync r2",
    }
    assert scheduler.next_job(0.0) is None


def test_a_repository_that_was_renamed_is_asked_for_by_its_path_on_each_host() -> None:
    scheduler = Scheduler()
    scheduler.here({identity(): Place("old", Tip(1, "ab" * 32, identity()))}, 0.0)
    scheduler.offer(push(2, path="new"), "x", 0.0)
    job = take(scheduler)
    assert (job.path, job.source_path) == ("old", "new")


def test_a_push_too_large_for_a_message_comes_from_the_source() -> None:
    scheduler = Scheduler()
    scheduler.announce(identity(), "r0", 1, 0.0)
    job = take(scheduler)
    assert job.up_to_date
    scheduler.finished(job, done(job, 1), 0.0)
    scheduler.announce(identity(), "r0", 1, 0.0)
    assert scheduler.next_job(0.0) is None


def test_a_message_that_cannot_be_read_is_named() -> None:
    scheduler = Scheduler()
    scheduler.refuse(identity(5), "a record has version 2, expected 1")
    assert scheduler.parked() == {
        identity(5): "a record has version 2, expected 1; update this mirror's release"
    }
    scheduler.compare([("r5", identity(5), 1, "ab" * 32)], {}, 0.0)
    assert fail(scheduler, Kind.DIVERGED).parked
    assert list(scheduler.parked()) == ["r5"]


def test_a_transaction_that_was_left_open_is_undone_at_the_start() -> None:
    scheduler = Scheduler()
    place = Place("r0", Tip(1, "ab" * 32, identity()), interrupted=True)
    scheduler.compare([("r0", identity(), 1, "ab" * 32)], {identity(): place}, 0.0)
    assert take(scheduler).up_to_date


def test_a_push_that_came_before_the_documents_needs_no_others() -> None:
    scheduler = Scheduler()
    scheduler.offer(replace(push(1), registry="one"), 1, 1.0)
    scheduler.brought(2.0, 3.0)
    scheduler.offer(replace(push(2), registry="two"), 2, 2.5)
    job = take(scheduler, 4.0)
    assert len(job.messages) == 2
    assert job.stamps == {"two"}


def test_a_push_that_waits_for_readers_goes_on_with_the_documents() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1), 1, 0.0)
    for _number in range(6):
        now = scheduler.next_time() or 0.0
        assert fail(scheduler, Kind.READERS, now).acknowledge == []
    assert scheduler.parked() == {}
    assert not scheduler.breaker.is_open
    assert scheduler.next_job(now) is None
    scheduler.brought(now, now)
    assert take(scheduler, now).stamps == frozenset()


def test_the_sessions_of_pushes_are_told_when_the_mirror_shows_them() -> None:
    scheduler = Scheduler()
    for number, session in ((1, "a" * 16), (2, ""), (3, "c" * 16)):
        scheduler.offer(replace(push(number), session=session), number, 0.0)
    scheduler.announce(identity(), "r0", 4, 0.0, "d" * 16)
    outcome = fail(scheduler, Kind.NETWORK, tip=2)
    assert outcome.sessions == {1: "a" * 16}
    assert (outcome.blocked, outcome.session) == (3, "c" * 16)
    job = take(scheduler, 1000.0)
    outcome = scheduler.finished(job, done(job, 4), 1000.0)
    assert outcome.sessions == {3: "c" * 16, 4: "d" * 16}
    # A message that comes again is not told of again.
    scheduler.offer(replace(push(4), session="d" * 16), 4, 1000.0)
    outcome = scheduler.finished(job := take(scheduler, 1000.0), done(job, 4), 1000.0)
    assert outcome.sessions == {}


def test_the_sessions_of_waiting_pushes_are_bounded() -> None:
    scheduler = Scheduler()
    for number in range(1, 2 * MOST_PENDING + 1):
        scheduler.offer(replace(push(number), session="a" * 16), number, 0.0)
    job = take(scheduler)
    assert len(scheduler.finished(job, done(job, 2 * MOST_PENDING), 0.0).sessions) == MOST_PENDING

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Record
from hgfleet.replication.mirror.failures import (
    LATE_SECONDS,
    MOST_TRIES,
    PARKED_SECONDS,
    Failure,
    Kind,
)
from hgfleet.replication.mirror.jobs import Job, Listed, Result, Task
from hgfleet.replication.mirror.places import Place
from hgfleet.replication.mirror.repository_state import BATCH_MESSAGES, MOST_PENDING
from hgfleet.replication.mirror.scheduler import Scheduler
from hgfleet.replication.protocol.messages import PushMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.replication.mirror.repository_state import Outcome

HASH = "ab" * 32


def identity(number: int = 0) -> str:
    return f"{number:032x}"


def push(number: int, repository: int = 0, path: str = "") -> PushMessage:
    record = Record(
        number, identity(repository), "push", "alice", 1, FIRST if number == 1 else "ab" * 32
    )
    return PushMessage(path or f"r{repository}", record.line(), record, b"changesets")


def place(number: int, repository: int = 0) -> Place:
    return Place(f"r{repository}", Tip(number, HASH, identity(repository)))


def compare(
    scheduler: Scheduler,
    *listed: Listed,
    here: Mapping[str, Place] = {},
    now: float = 0.0,
) -> list[object]:
    return scheduler.compare(listed, here, now, now)


def caught_up(scheduler: Scheduler, now: float = 0.0) -> bool:
    return scheduler.status(now).caught_up


def done(job: Job, tip: int, failure: Kind | None = None) -> Result:
    # No hash: the record's is not known here.
    failed = None if failure is None else Failure(failure, f"it is {failure}")
    return Result(Tip(tip, "", job.identity), failed)


def take(scheduler: Scheduler, now: float = 0.0) -> Job:
    job = scheduler.next_job(now)
    assert job is not None
    return job


def fail(scheduler: Scheduler, kind: Kind, now: float = 0.0, tip: int = 0) -> Outcome:
    return scheduler.finished(job := take(scheduler, now), done(job, tip, kind), now)


def test_another_push_of_the_number_that_is_shown_is_not_acknowledged_unseen() -> None:
    """After a restore of the primary: the job compares the chains, and parks the repository."""
    scheduler = Scheduler()
    message = push(1)
    assert scheduler.offer(message, 1, 0.0) == []
    job = take(scheduler)
    tip = Tip(1, message.hash, job.identity)
    assert scheduler.finished(job, Result(tip, None), 0.0).acknowledge == [1]
    assert scheduler.shown(identity()) == (1, message.hash)
    assert scheduler.offer(message, 2, 0.0) == [2]
    record = replace(message.record, user="bob")
    other = PushMessage("r0", record.line(), record)
    assert scheduler.offer(other, 3, 0.0) == []
    job = take(scheduler)
    assert job.messages == ((other.line, b""),)
    outcome = scheduler.finished(job, Result(tip, Failure(Kind.DIVERGED, "another")), 0.0)
    assert (outcome.acknowledge, outcome.parked) == ([3], "another")


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
    assert {take(scheduler).identity, take(scheduler).identity} == {identity(1), identity(2)}


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
    assert scheduler.status(0.0).waiting == MOST_PENDING
    job = take(scheduler)
    scheduler.finished(job, done(job, MOST_PENDING + 1), 0.0)
    assert take(scheduler).up_to_date


def test_a_seen_push_is_acknowledged_at_once() -> None:
    scheduler = Scheduler()
    scheduler.here({identity(): Place("r0", Tip(5, push(5).hash, identity()))}, 0.0)
    assert scheduler.offer(push(5), "seen", 0.0) == ["seen"]
    assert scheduler.offer(push(4), "before", 0.0) == ["before"]
    assert scheduler.next_job(0.0) is None


def test_a_message_that_is_delivered_again_is_one_push() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1), "first", 0.0)
    scheduler.offer(push(1), "again", 0.0)
    job = take(scheduler)
    assert len(job.messages) == 1
    assert scheduler.finished(job, done(job, 1), 0.0).acknowledge == ["again"]


def test_a_push_of_a_later_epoch_is_not_one_that_the_mirror_shows_already() -> None:
    """The primary gave up pushes that this mirror has: the job finds out, and parks it."""
    scheduler = Scheduler()
    scheduler.here({identity(): place(7)}, 0.0)
    assert scheduler.offer(push(5), 1, 0.0) == [1]
    record = replace(push(5).record, epoch=2)
    assert scheduler.offer(PushMessage("r0", record.line(), record), 2, 0.0) == []
    assert take(scheduler).messages == ((record.line(), b""),)


def test_a_large_push_of_the_number_that_is_shown_is_asked_for_if_it_is_another_one() -> None:
    scheduler = Scheduler()
    scheduler.here({identity(): place(7)}, 0.0)
    for hash_ in ("", HASH):
        scheduler.announce(identity(), 7, 0.0, "", hash_)
        assert scheduler.next_job(0.0) is None
    scheduler.announce(identity(), 7, 0.0, "", "cd" * 32)
    assert take(scheduler).up_to_date


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
        assert job.identity == identity(2)
        scheduler.finished(job, done(job, _try + 1), now)
        assert scheduler.source_problem == "it is network"
        time = scheduler.next_time()
        assert time is not None
        assert now < time <= now + 15.0
        now = time
    assert scheduler.status(now).parked == {}
    job = take(scheduler, now)
    scheduler.finished(job, done(job, 3), now)
    job = take(scheduler, now)
    assert job.up_to_date
    scheduler.finished(job, done(job, 3), now)
    assert scheduler.source_problem == ""
    assert scheduler.next_job(now) is None


def test_many_repositories_that_are_behind_do_not_all_ask_a_source_that_is_away() -> None:
    scheduler = Scheduler()
    compare(scheduler, *(Listed(identity(n), 1, HASH) for n in range(1000)))
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
    assert scheduler.status(1.0).parked == {identity(1): "it is poison"}
    assert scheduler.status(1.0).unserved == {identity(1)}
    assert scheduler.offer(push(2, 1), "next", 1.0) == ["next"]
    assert scheduler.next_job(1.0 + PARKED_SECONDS / 2) is None


def test_a_parked_repository_is_tried_again_and_leaves_the_list() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1, 1), "x", 0.0)
    fail(scheduler, Kind.DIVERGED)
    assert scheduler.status(0.0).parked
    now = PARKED_SECONDS
    assert fail(scheduler, Kind.DIVERGED, now).parked == ""
    job = take(scheduler, 2 * now)
    assert job.up_to_date
    scheduler.finished(job, done(job, 7), 2 * now)
    assert scheduler.status(0.0).parked == {}
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
    assert not caught_up(scheduler)
    listed = [Listed(identity(1), 4, HASH), Listed(identity(2), 3, HASH), Listed(identity(3))]
    compare(scheduler, *listed, here={identity(1): place(4, 1)})
    assert not caught_up(scheduler)
    job = take(scheduler)
    assert (job.identity, job.up_to_date) == (identity(2), True)
    assert not caught_up(scheduler)
    assert scheduler.next_job(0.0) is None
    scheduler.finished(job, done(job, 3), 0.0)
    assert caught_up(scheduler)


def test_a_mirror_that_has_more_or_other_than_the_primary_is_parked() -> None:
    scheduler = Scheduler()
    here = {identity(n): place(4, n) for n in (1, 2, 3)}
    here[identity(3)] = here[identity(3)]._replace(is_other=True)
    other = "00" * 32
    listed = [Listed(identity(n), number, other) for n, number in ((1, 3), (2, 4), (3, 3))]
    compare(scheduler, *listed, here=here)
    assert scheduler.status(0.0).parked == {
        identity(1): "the mirror has record 4, and the primary's last is 3",
        identity(2): "record 4 is abababababab here and 000000000000 there",
        identity(3): "record 3 differs from the primary's, and the mirror has 4 records",
    }
    # Readers of a mirror go on where the primary lost its last pushes.
    assert scheduler.status(0.0).unserved == {identity(2), identity(3)}
    assert scheduler.next_job(0.0) is None


def test_a_repository_that_differs_is_parked_until_a_comparison_agrees() -> None:
    """The source has nothing after the tip: that says nothing of the tip."""
    scheduler = Scheduler()
    here, other = {identity(): place(7)}, Listed(identity(), 7, "00" * 32)
    compare(scheduler, other, here=here)
    now = 0.0
    for _number in range(3):
        now += PARKED_SECONDS
        job = take(scheduler, now)
        outcome = scheduler.finished(job, Result(here[identity()].tip), now)
        # The comparison comes at once, and not with the next ordinary comparison.
        assert (job.up_to_date, outcome.compare) == (True, True)
        assert scheduler.status(now).unserved == {identity()}
        assert scheduler.next_job(now) is None
        compare(scheduler, other, here=here, now=now)
    # The primary cannot read the repository, and then lists fewer pushes than before.
    compare(scheduler, Listed(identity(), problem="EIO"), here=here, now=now)
    assert scheduler.status(now).unserved == {identity()}
    compare(scheduler, Listed(identity(), 6, HASH), here=here, now=now)
    assert scheduler.status(now).unserved == {identity()}
    compare(scheduler, Listed(identity(), 7, HASH), here=here, now=now + 1.0)
    assert scheduler.status(now).parked == {}
    assert scheduler.next_job(now + 2 * PARKED_SECONDS) is None


def test_what_a_job_brought_from_the_source_ends_a_difference() -> None:
    here, other = {identity(): place(7)}, Listed(identity(), 7, "00" * 32)
    for tip in (Tip(7, "00" * 32, identity()), Tip(8, HASH, identity())):
        scheduler = Scheduler()
        compare(scheduler, other, here=here)
        job = take(scheduler, PARKED_SECONDS)
        assert not scheduler.finished(job, Result(tip), PARKED_SECONDS).compare
        assert scheduler.status(PARKED_SECONDS).parked == {}


def test_a_mirror_that_is_ahead_goes_on_with_the_pushes_of_its_chain() -> None:
    scheduler = Scheduler()
    compare(scheduler, Listed(identity(), 6, "00" * 32), here={identity(): place(7)})
    assert scheduler.offer(push(8), "of the lost chain", 1.0) == []
    job = take(scheduler, 1.0)
    tip = Tip(8, HASH, identity())
    assert scheduler.finished(job, Result(tip), 1.0).acknowledge == ["of the lost chain"]
    # The operators gave it up: the next push of the primary is of another chain.
    record = replace(push(7).record, epoch=2)
    assert scheduler.offer(PushMessage("r0", record.line(), record), "next", 2.0) == []
    assert fail(scheduler, Kind.DIVERGED, 2.0, tip=8).parked
    assert scheduler.status(2.0).unserved == {identity()}


def test_a_push_that_is_being_applied_is_not_behind() -> None:
    """During a long push, a change of the registry has the mirror compare itself."""
    scheduler = Scheduler()
    compare(scheduler, Listed(identity(), 1, HASH), here={identity(): place(1)})
    scheduler.offer(push(2), "long", 1.0)
    job = take(scheduler, 1.0)
    now = 1.0 + 2 * LATE_SECONDS
    compare(scheduler, Listed(identity(), 2, HASH), here={identity(): place(1)}, now=now)
    assert caught_up(scheduler, now)
    assert scheduler.finished(job, done(job, 2), now).acknowledge == ["long"]
    # The source is not asked for a push that the message brings.
    assert scheduler.next_job(now) is None
    assert caught_up(scheduler, now)


def test_a_connection_that_ends_during_a_long_push_leaves_the_mirror_in_service() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1), "long", 1.0)
    take(scheduler, 1.0)
    scheduler.connected(50.0)
    assert not caught_up(scheduler, 60.0)
    compare(scheduler, Listed(identity(), 1, HASH), Listed(identity(2), 1, HASH), now=60.0)
    # A push that the mirror may have missed in ten seconds is behind, and not late.
    assert take(scheduler, 60.0).identity == identity(2)
    assert caught_up(scheduler, 60.0)


def test_a_repository_that_is_behind_for_long_takes_the_mirror_out() -> None:
    scheduler = Scheduler()
    compare(scheduler)
    scheduler.offer(push(1), 1, 0.0)
    assert caught_up(scheduler, LATE_SECONDS)
    assert not caught_up(scheduler, LATE_SECONDS + 1)


def test_what_was_missed_before_the_start_is_late_at_once() -> None:
    scheduler = Scheduler()
    compare(scheduler, Listed(identity(), 1, HASH))
    job = take(scheduler)
    assert not caught_up(scheduler)
    scheduler.finished(job, done(job, 1), 0.0)
    assert caught_up(scheduler)


def test_two_repositories_that_the_source_refuses_starve_no_other() -> None:
    scheduler = Scheduler()
    compare(scheduler, *(Listed(identity(n), 1, HASH) for n in (1, 2, 3)))
    finished, now = set(), 0.0
    while now < LATE_SECONDS:
        while (job := scheduler.next_job(now)) is not None:
            refused = job.identity in (identity(1), identity(2))
            result = done(job, 0, Kind.REFUSED) if refused else done(job, 1)
            scheduler.finished(job, result, now)
            finished |= set() if refused else {(job.identity, now)}
        now += 1.0
    assert finished == {(identity(3), 0.0)}
    assert scheduler.source_problem == ""
    status = scheduler.status(now)
    assert status.caught_up
    assert status.parked.keys() == status.unserved == {identity(1), identity(2)}


def test_a_repository_that_the_primary_lists_with_a_problem_is_told_and_served() -> None:
    scheduler = Scheduler()
    here = {identity(): place(4)}
    compare(scheduler, Listed(identity(), problem="EIO"), here=here)
    status = scheduler.status(0.0)
    assert status.parked == {identity(): "the primary cannot read it: EIO"}
    assert (status.caught_up, status.unserved) == (True, frozenset())
    # The relay could read the push, so it is applied.
    scheduler.offer(push(5), "next", 1.0)
    job = take(scheduler, 1.0)
    assert scheduler.finished(job, done(job, 5), 1.0).acknowledge == ["next"]
    assert scheduler.status(1.0).parked == {}


def test_a_repository_whose_folder_does_not_come_is_parked_after_the_documents() -> None:
    scheduler = Scheduler()
    compare(scheduler)
    scheduler.offer(push(1), "x", 0.0)
    now = 0.0
    for _try in range(2 * MOST_TRIES[Kind.MISSING]):
        assert fail(scheduler, Kind.MISSING, now).parked == ""
        now = scheduler.next_time() or now
    # It waits for the documents, which do not come; then they do.
    scheduler.brought(now, now)
    assert fail(scheduler, Kind.MISSING, now).parked == "it is missing"
    scheduler.brought(now, now)
    job = take(scheduler, now)
    scheduler.finished(job, done(job, 1), now)
    assert scheduler.status(now).parked == {}


def test_a_deleted_repository_ends_with_its_alarms_and_messages() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1, 1), "parked", 0.0)
    fail(scheduler, Kind.DIVERGED)
    scheduler.offer(push(1, 2), "pending", 0.0)
    scheduler.offer(push(1, 3), "at work", 0.0)
    scheduler.refuse(identity(4), "unreadable", 0.0)
    take(scheduler)
    job = take(scheduler)
    purged = {identity(n) for n in (1, 2, 3, 4)}
    assert scheduler.purge(purged) == ["pending", "at work"]
    assert scheduler.finished(job, done(job, 0, Kind.MISSING), 0.0).acknowledge == []
    status = scheduler.status(0.0)
    assert (status.parked, status.waiting, scheduler.repositories) == ({}, 0, 0)
    assert scheduler.offer(push(2, 1), "again", 0.0) == ["again"]
    scheduler.announce(identity(1), 3, 0.0)
    scheduler.refuse(identity(1), "unreadable", 0.0)
    assert scheduler.next_job(1000.0) is None
    assert scheduler.status(0.0).parked == {}


def test_a_repository_out_of_service_rests_with_its_alarms() -> None:
    scheduler = Scheduler()
    scheduler.here({identity(1): place(1, 1)}, 0.0)
    scheduler.offer(push(2, 1), "archived", 1.0)
    scheduler.offer(push(1, 2), "created since", 3.0)
    assert scheduler.compare([], {identity(1): place(1, 1)}, 2.0, 4.0) == ["archived"]
    assert scheduler.shown(identity(1))[0] == 1
    assert take(scheduler, 4.0).identity == identity(2)
    fail_now = scheduler.compare([Listed(identity(1), 2, HASH)], {}, 5.0, 5.0)
    # Restored, it comes from the source.
    assert fail_now == []
    assert take(scheduler, 5.0).identity == identity(1)


def test_a_push_too_large_for_a_message_comes_from_the_source() -> None:
    scheduler = Scheduler()
    scheduler.announce(identity(), 1, 0.0)
    job = take(scheduler)
    assert job.up_to_date
    scheduler.finished(job, done(job, 1), 0.0)
    scheduler.announce(identity(), 1, 0.0)
    assert scheduler.next_job(0.0) is None


def test_a_message_that_cannot_be_read_is_named() -> None:
    scheduler = Scheduler()
    scheduler.refuse(identity(5), "a record has version 2, expected 1", 0.0)
    assert scheduler.status(0.0).parked == {
        identity(5): "a record has version 2, expected 1; update this mirror's release"
    }
    compare(scheduler, Listed(identity(5), 1, HASH))
    assert fail(scheduler, Kind.DIVERGED).parked
    assert list(scheduler.status(0.0).parked) == [identity(5)]


def test_a_transaction_that_was_left_open_is_undone_at_the_start() -> None:
    scheduler = Scheduler()
    here = {identity(): place(1)._replace(interrupted=True)}
    compare(scheduler, Listed(identity(), 1, HASH), here=here)
    assert take(scheduler).up_to_date


def test_a_push_that_came_before_the_documents_needs_no_others() -> None:
    scheduler = Scheduler()
    scheduler.offer(replace(push(1), registry="one"), 1, 1.0)
    scheduler.brought(2.0, 3.0)
    scheduler.offer(replace(push(2), registry="two"), 2, 2.5)
    job = take(scheduler, 4.0)
    assert len(job.messages) == 2
    assert job.stamps == {"two"}


def test_a_push_needs_its_readers_where_the_registry_was_refused() -> None:
    scheduler = Scheduler()
    scheduler.offer(replace(push(1), registry="one"), 1, 1.0)
    now = 2.0
    for _try in range(MOST_TRIES[Kind.MISSING]):
        scheduler.brought(now, now, registry=False)
        job = take(scheduler, now)
        assert job.stamps == {"one"}
        failure = Result(failure=Failure(Kind.MISSING, "its registry was refused"))
        outcome = scheduler.finished(job, failure, now)
        now += 100.0
    # A compare with the source brings it again; its mirror serves the others.
    assert outcome.parked
    assert not scheduler.status(now).behind


def test_a_push_that_waits_for_readers_goes_on_with_the_documents() -> None:
    scheduler = Scheduler()
    scheduler.offer(push(1), 1, 0.0)
    for _number in range(6):
        now = scheduler.next_time() or 0.0
        assert fail(scheduler, Kind.READERS, now).acknowledge == []
    assert scheduler.status(0.0).parked == {}
    assert not scheduler.breaker.is_open
    assert scheduler.next_job(now) is None
    scheduler.brought(now, now)
    assert take(scheduler, now).stamps == frozenset()


def test_the_sessions_of_pushes_are_told_when_the_mirror_shows_them() -> None:
    scheduler = Scheduler()
    for number, session in ((1, "a" * 16), (2, ""), (3, "c" * 16)):
        scheduler.offer(replace(push(number), session=session), number, 0.0)
    scheduler.announce(identity(), 4, 0.0, "d" * 16)
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


def test_a_folder_that_went_back_is_brought_up_again() -> None:
    scheduler = Scheduler()
    compare(scheduler, Listed(identity(), 3, HASH), here={identity(): place(3)})
    assert scheduler.next_job(1.0) is None
    # An operator moved it away, and an empty folder is in its place.
    compare(scheduler, Listed(identity(), 3, HASH), here={}, now=60.0)
    job = scheduler.next_job(60.0)
    assert job is not None
    assert (job.identity, job.up_to_date) == (identity(), True)
    # A comparison that was read before a job ended is older than the job.
    scheduler.finished(job, Result(Tip(3, HASH, identity())), 70.0)
    scheduler.compare([Listed(identity(), 3, HASH)], {}, 65.0, 75.0)
    assert scheduler.next_job(75.0) is None


def test_repositories_with_records_are_named_where_they_lie() -> None:
    scheduler = Scheduler()
    paths = {identity(number): f"r{number}" for number in range(3)}
    # 1 is empty, 3 is in no registry, 2 is at work.
    here = {identity(number): place(7, number) for number in (0, 2, 3)}
    compare(scheduler, Listed(identity(1)), here=here)
    scheduler.offer(push(8, 2), "handle", 0.0)
    assert scheduler.with_records(paths) == ["r0", "r2"]
    take(scheduler)
    assert scheduler.with_records(paths) == ["r0"]

from __future__ import annotations

from hgfleet.replication.mirror.breaker import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    THRESHOLD,
    Breaker,
)


def broken(now: float = 100.0) -> Breaker:
    breaker = Breaker()
    for number in range(THRESHOLD):
        breaker.failure(f"r{number}", now)
    return breaker


def test_one_repository_that_fails_for_ever_pauses_nothing() -> None:
    breaker = Breaker()
    for _number in range(100):
        breaker.failure("a", 0.0)
    assert breaker.may_start(0.0)


def test_failures_with_successes_between_them_pause_nothing() -> None:
    breaker = Breaker()
    for number in range(100):
        breaker.failure(f"r{number}", 0.0)
        if number % 3 == 2:
            breaker.succeeded()
    assert breaker.may_start(0.0)


def test_failures_of_different_repositories_in_a_row_pause_all() -> None:
    breaker = broken()
    assert breaker.is_open
    assert not breaker.may_start(100.0)
    assert breaker.may_start(100.0 + FIRST_PAUSE_SECONDS)


def test_after_a_pause_one_repository_is_tried_at_a_time() -> None:
    breaker = broken()
    now = 100.0 + FIRST_PAUSE_SECONDS
    breaker.started()
    assert not breaker.may_start(now)
    breaker.failure("r9", now)
    assert not breaker.may_start(now + FIRST_PAUSE_SECONDS)
    assert breaker.may_start(now + 2 * FIRST_PAUSE_SECONDS)


def test_a_success_ends_the_pause() -> None:
    breaker = broken()
    breaker.started()
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.may_start(100.0)
    breaker.started()
    assert breaker.may_start(100.0)


def test_pauses_have_a_bound() -> None:
    breaker, now = broken(), 100.0
    for number in range(40):
        now = breaker.until
        breaker.started()
        breaker.failure(f"s{number}", now)
    assert breaker.until - now == LONGEST_PAUSE_SECONDS


def test_jobs_that_began_before_the_pause_do_not_lengthen_it() -> None:
    breaker = broken()
    until = breaker.until
    breaker.failure("late", 100.1)
    assert breaker.until == until

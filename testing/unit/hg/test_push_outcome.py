"""How pushes end, and the counts of them."""

from __future__ import annotations

from hgfleet.hg import push_outcome
from hgfleet.hg.push_outcome import BUCKETS, ENDS, FAILED, REASONS, REFUSED


def test_the_first_reason_stays_and_is_taken_once() -> None:
    push_outcome.take()
    push_outcome.record("access")
    push_outcome.record("policies")
    assert push_outcome.take() == "access"
    assert push_outcome.take() is None


def test_a_word_that_is_no_reason_is_an_error_of_the_service() -> None:
    push_outcome.take()
    push_outcome.record('x"} 1')
    assert push_outcome.take() == "error"


def test_each_reason_is_a_refusal_or_a_failure() -> None:
    assert len(set(REASONS)) == len(REFUSED) + len(FAILED)
    assert set(ENDS.values()) <= set(REASONS)


def test_counts_of_pushes_add_up() -> None:
    total: dict[str, float] = {}
    pushes = [(None, 0.05), (None, 0.1), (None, 2.0), (None, 1000.0), ("access", 0), ("disk", 0)]
    for reason, seconds in pushes:
        for name, amount in push_outcome.counts(reason, seconds).items():
            total[name] = total.get(name, 0) + amount
    outcomes = push_outcome.of(total)
    assert outcomes.accepted == 4
    assert outcomes.seconds == 1002.15
    assert sum(outcomes.refused.values()) == outcomes.refused["access"] == 1
    assert sum(outcomes.failed.values()) == outcomes.failed["disk"] == 1
    buckets = dict(outcomes.buckets)
    assert list(buckets) == list(BUCKETS)
    assert (buckets[0.1], buckets[0.25], buckets[2.5], buckets[300.0]) == (2, 2, 3, 3)


def test_before_the_first_push_every_count_is_0() -> None:
    outcomes = push_outcome.of({})
    assert set(outcomes.refused) == set(REFUSED)
    assert not any((outcomes.accepted, outcomes.seconds, *outcomes.failed.values()))
    assert push_outcome.of({"x": 9.0, "at most 7 s": 3}) == outcomes

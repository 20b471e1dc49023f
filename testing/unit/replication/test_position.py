from __future__ import annotations

from dataclasses import replace

from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Record, hash_of
from hgfleet.replication.mirror.record_order import Step, decide

IDENTITY = "7d" * 16
FIRST_PUSH = Record(1, IDENTITY, "push", "alice", 1, FIRST)
SECOND = Record(2, IDENTITY, "push", "alice", 2, hash_of(FIRST_PUSH.line()))
TIP = Tip(1, hash_of(FIRST_PUSH.line()), IDENTITY, 100, 1)


def step(tip: Tip, record: Record) -> tuple[Step, str]:
    return decide(tip, record, record.line())


def test_the_next_record_is_applied() -> None:
    assert step(Tip(), FIRST_PUSH) == (Step.APPLY, "")
    assert step(TIP, SECOND) == (Step.APPLY, "")


def test_a_record_that_the_mirror_has_is_seen() -> None:
    assert step(TIP, FIRST_PUSH) == (Step.SEEN, "")


def test_a_record_with_others_missing_before_it_is_a_gap() -> None:
    assert step(Tip(), SECOND) == (Step.GAP, "")


def test_another_record_with_the_number_of_the_last_diverges() -> None:
    outcome, reason = step(TIP, replace(FIRST_PUSH, user="bob"))
    assert outcome is Step.DIVERGED
    assert "record 1 of the primary is" in reason


def test_a_broken_chain_diverges() -> None:
    outcome, reason = step(TIP, replace(SECOND, previous="ab" * 32))
    assert outcome is Step.DIVERGED
    assert "continues abababababab" in reason


def test_another_repository_diverges_also_if_its_number_is_seen() -> None:
    for record in (FIRST_PUSH, SECOND):
        outcome, reason = step(TIP, replace(record, repository="ab" * 16))
        assert outcome is Step.DIVERGED
        assert "belongs to repository abab" in reason


def test_a_push_of_a_former_primary_that_was_given_up_is_passed_over() -> None:
    tip = TIP._replace(epoch=2)
    for stale in (SECOND, replace(SECOND, id=7), replace(FIRST_PUSH, user="bob")):
        outcome, reason = step(tip, stale)
        assert outcome is Step.STALE
        assert "epoch 1" in reason
        assert "epoch 2" in reason


def test_a_mirror_with_more_pushes_of_a_former_primary_than_the_new_one_diverges() -> None:
    tip = Tip(3, "ab" * 32, IDENTITY, 300, 1)
    assert step(tip, SECOND) == (Step.SEEN, "")
    outcome, reason = step(tip, replace(SECOND, epoch=2))
    assert outcome is Step.DIVERGED
    assert "pushes of a former primary" in reason


def test_the_first_push_of_a_new_primary_is_applied() -> None:
    assert step(TIP, replace(SECOND, epoch=2)) == (Step.APPLY, "")

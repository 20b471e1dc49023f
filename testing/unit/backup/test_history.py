from __future__ import annotations

from hgfleet.backup.restores.history import difference, heads, later, parse
from hgfleet.pushlog.record import Record

A, B, C, D, E, NULL = ("".join(c * 40) for c in "abcde0")

RESTORED = parse([f"{A} {NULL} {NULL}", f"{B} {A} {NULL}", f"{C} {A} {NULL}"])


def record(number: int, seconds: int) -> Record:
    return Record(number, "7d" * 16, "push", "alice", seconds * 1000, "0" * 64)


def test_parents_and_heads_are_read() -> None:
    assert RESTORED == {A: (), B: (A,), C: (A,)}
    assert heads(RESTORED) == (B, C)
    assert heads({**RESTORED, D: (B, C)}) == (D,)


def test_equal_histories_have_no_difference() -> None:
    assert not difference(RESTORED, RESTORED)


def test_only_the_roots_of_what_goes_are_removed() -> None:
    # D merges a changeset that stays with a changeset that goes.
    diff = difference({A: (), B: (A,), D: (A,), E: (D, B)}, RESTORED)
    assert diff
    assert (diff.missing, diff.extra, diff.roots) == ((C,), (D, E), (D,))
    assert (diff.missing_heads, diff.extra_heads) == ((B, C), (E,))


def test_a_changeset_that_became_a_head_by_a_removal_is_one_of_the_running_repository() -> None:
    diff = difference({A: ()}, RESTORED)
    assert (diff.missing, diff.roots) == ((B, C), ())
    assert (diff.missing_heads, diff.extra_heads) == ((B, C), (A,))


def test_pushes_between_a_backup_and_the_time_asked_for_are_counted() -> None:
    records = [record(number, 100 * number) for number in range(1, 6)]
    assert later(records, 2, 400) == (2, 1)
    assert later(records, 5, 400) == (0, 0)
    assert later(records, 2, None) == (0, 3)

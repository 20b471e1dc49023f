"""Search in a push log."""

from __future__ import annotations

import pytest

from hgfleet.core.errors import UsageError
from hgfleet.pushlog import query
from hgfleet.pushlog.query import Query
from testing.support.pushlog_records import NODE, OTHER, record


@pytest.mark.parametrize(
    ("text", "expected"),
    [("42", (42, 42)), ("40:50", (40, 50)), ("40:", (40, None)), (":50", (0, 50)), (" 7 ", (7, 7))],
)
def test_ids_are_one_number_or_a_range(text: str, expected: tuple[int, int | None]) -> None:
    assert query.ids(text) == expected


@pytest.mark.parametrize("text", ["", ":", "x", "1-2", "-1", "1:2:3", "9" * 19])
def test_other_ids_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected 42, 40:50, 40: or :50"):
        query.ids(text)


def test_a_record_has_to_meet_all_conditions() -> None:
    push = record(id=5)
    assert Query().fits(push)
    assert Query(ids=(5, None)).fits(push)
    assert not Query(ids=(6, None)).fits(push)
    assert not Query(ids=(1, 4)).fits(push)
    assert Query(user="alice".__eq__, changesets=frozenset({NODE})).fits(push)
    assert not Query(user="bob".__eq__, changesets=frozenset({NODE})).fits(push)
    assert not Query(changesets=frozenset({OTHER})).fits(push)
    assert Query(date=(1795440000.123).__eq__).fits(push)


def test_a_changeset_belongs_to_its_last_push() -> None:
    first, strip = record(id=1), record(id=2, kind="strip")
    again = record(id=3, user="bob")
    assert query.pushes_of([first]) == {NODE: first}
    assert query.pushes_of([first, strip]) == {}
    assert query.pushes_of([first, strip, again]) == {NODE: again}

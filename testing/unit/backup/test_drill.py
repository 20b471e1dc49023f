from __future__ import annotations

from hgfleet.backup.restic.restic import Snapshot
from hgfleet.backup.restores.drill import sample, spread


def test_those_restored_longest_ago_come_first() -> None:
    drills = {"a": {"time": 2.0}, "b": {"time": 1.0}, "c": {"time": 3.0}}
    assert sample(["a", "b", "c", "new"], drills, 3, 9.0) == ["new", "b", "a"]


def test_each_repository_has_its_turn_in_four_weeks() -> None:
    names = [f"r{number}" for number in range(1000)]
    drills: dict[str, dict[str, float]] = {}
    for day in range(28):
        drills |= {name: {"time": day + 1.0} for name in sample(names, drills, 5, 99.0)}
    assert set(drills) == set(names)


def test_all_that_failed_come_first_and_take_no_place_of_the_others() -> None:
    drills = {name: {"time": 5.0, "error": "bad"} for name in "xyz"} | {"a": {"time": 1.0}}
    assert sample([*"abxyz"], drills, 1, 9.0) == ["x", "y", "z", "b"]


def test_a_drill_of_the_future_is_none() -> None:
    drills = {"a": {"time": 4e9}, "b": {"time": 1.0}, "c": {"time": 2.0}}
    assert sample([*"abc"], drills, 2, 1e9) == ["a", "b"]


def test_a_diagnosis_looks_at_few_backups_and_at_the_oldest() -> None:
    older = [Snapshot(str(number), "", (), ()) for number in range(95)]
    assert [snapshot.id for snapshot in spread(older)] == [
        "0",
        "1",
        "3",
        "7",
        "15",
        "31",
        "63",
        "94",
    ]
    assert [snapshot.id for snapshot in spread(older[:3])] == ["0", "1", "2"]
    assert spread(older[:1]) == older[:1]
    assert spread([]) == []

from __future__ import annotations

from hgfleet.backup.drill import sample


def test_those_restored_longest_ago_come_first() -> None:
    drills = {"a": {"time": 2.0}, "b": {"time": 1.0}, "c": {"time": 3.0}}
    assert sample(["a", "b", "c", "new"], drills, 3) == ["new", "b", "a"]


def test_each_repository_has_its_turn_in_four_weeks() -> None:
    names = [f"r{number}" for number in range(1000)]
    drills = {}
    for day in range(28):
        drills |= {name: {"time": day + 1.0} for name in sample(names, drills, 5)}
    assert set(drills) == set(names)

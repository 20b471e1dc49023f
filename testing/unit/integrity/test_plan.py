from __future__ import annotations

from dataclasses import replace

import pytest

from hgfleet.integrity.plan import (
    DAY_SECONDS,
    Checked,
    carried,
    corrupt,
    is_due,
    overdue,
    sentences,
    tonight,
)

BEGIN = 1_795_000_000.0


def of(size: int, *, verified: float = 0.0, error: str = "", seen: float = BEGIN) -> Checked:
    return Checked(seen=seen, time=verified, size=size, error=error)


@pytest.mark.parametrize("days", [1, 7, 30])
def test_each_repository_has_its_turn_within_the_days(days: int) -> None:
    # Sizes as in real fleets: most repositories are small, a single one has half of all bytes.
    known = {f"r{n:03}": of(10 ** (n % 6)) for n in range(200)} | {"big": of(10**9)}
    nights = []
    for night in range(2 * days):
        now = BEGIN + night * DAY_SECONDS
        chosen = tonight(known, days=days, now=now)
        nights.append(len(chosen))
        known |= {path: replace(known[path], time=now) for path in chosen}
        assert not overdue(known, days=days, now=now)
    assert min(checked.time for checked in known.values()) >= BEGIN + (days - 1) * DAY_SECONDS
    assert all(nights)


def test_a_repository_is_overdue_a_day_after_its_days() -> None:
    """A night begins at a random time, so a day more is allowed, and not two."""
    known = {"r": of(1)}
    end = BEGIN + 7 * DAY_SECONDS
    assert overdue(known, days=6, now=end) == []
    assert overdue(known, days=6, now=end + 1) == ["r"]


def test_a_repository_is_due_in_the_last_night_of_its_days() -> None:
    checked = of(1)
    last = BEGIN + 6 * DAY_SECONDS
    assert not is_due(checked, 7, last)
    assert is_due(checked, 7, last + 1)


def test_a_night_takes_a_share_of_the_bytes() -> None:
    known = {f"r{n:03}": of(10**8) for n in range(90)}
    assert len(tonight(known, days=30, now=BEGIN)) == 3


def test_those_verified_longest_ago_come_first() -> None:
    now = BEGIN + DAY_SECONDS
    known = {"b": of(1, verified=2.0), "a": of(1, verified=3.0), "c": of(1)}
    known = {path: replace(checked, seen=now) for path, checked in known.items()}
    known["b"], known["a"] = (
        replace(known[name], time=now - n) for name, n in (("b", 9), ("a", 1))
    )
    assert tonight(known, days=3, now=now)[0] == "c"
    known["c"] = replace(known["c"], time=now)
    assert tonight(known, days=3, now=now) == ["b"]


def test_a_host_that_was_off_makes_up_for_its_nights() -> None:
    known = {f"r{n}": of(10**6, verified=BEGIN) for n in range(30)}
    assert len(tonight(known, days=30, now=BEGIN + DAY_SECONDS)) == 1
    assert len(tonight(known, days=30, now=BEGIN + 40 * DAY_SECONDS)) == 30


def test_a_corrupt_repository_is_verified_each_night_until_it_is_good() -> None:
    now = BEGIN + DAY_SECONDS
    known = {f"r{n}": of(10**6, verified=BEGIN - n) for n in range(30)}
    known["r0"] = replace(known["r0"], error="data/x.i@3: integrity check failed")
    assert tonight(known, days=30, now=now) == ["r29", "r0"]
    assert corrupt(known) == {"r0": "data/x.i@3: integrity check failed"}


def test_status_names_what_is_corrupt_and_its_repair_first() -> None:
    now = BEGIN + 40 * DAY_SECONDS
    known = {
        "team/bad": of(1, verified=now - 60, error="file.txt@2: unpacking"),
        "team/good": of(1, verified=now - 60),
        "team/late": of(1),
    }
    said = sentences(known, now - 60, days=30, now=now)
    assert said[0].startswith("team/bad: CORRUPT at ")
    assert "file.txt@2: unpacking; to repair it: hgfleet integrity repair team/bad" in said[0]
    assert said[1] == "team/late: not verified for 40 days"
    assert said[2].startswith("2 of 3 repositories were verified, each has its turn within 30 days")
    assert sentences({}, None, days=30, now=now) == [
        "0 of 0 repositories were verified, each has its turn within 30 days; last run: never"
    ]


ONE, OTHER = "a" * 32, "b" * 32


def test_a_result_goes_with_its_repository_and_ends_with_it() -> None:
    bad = Checked(1.0, 2.0, error="bad", identity=ONE)
    # Renamed, and another repository at its former path.
    known = {"team/a": bad, "team/gone": Checked(1.0, identity="c" * 32)}
    results = carried(known, {"team/a": OTHER, "team/b": ONE})
    assert results == {"team/b": bad}
    # Deleted and made again.
    assert carried(known, {"team/a": OTHER}) == {}
    assert carried(known, {"team/a": ONE}) == {"team/a": bad}


def test_a_result_of_a_release_before_is_of_the_repository_at_its_path() -> None:
    before = Checked(1.0, 2.0, error="bad")
    for identity in ("", ONE):
        (result,) = carried({"team/a": before}, {"team/a": identity}).values()
        assert (result.error, result.identity) == ("bad", identity)
    assert carried({"team/a": before}, {"team/b": ONE}) == {}
    # A result does not stay with a repository that lost its identity.
    assert carried({"team/a": Checked(1.0, identity=ONE)}, {"team/a": ""}) == {}


def test_a_verification_of_the_future_is_none() -> None:
    """The clock ran ahead, and was set back: the repository would not be verified for years."""
    later = BEGIN + 900 * DAY_SECONDS
    known = {f"r{n}": of(10**6, verified=BEGIN) for n in range(30)}
    known["ahead"] = replace(of(1), time=later, seen=BEGIN)
    now = BEGIN + 40 * DAY_SECONDS
    assert is_due(known["ahead"], 30, now)
    assert tonight(known, days=30, now=BEGIN + 1)[0] == "ahead"
    assert "ahead" in overdue(known, days=30, now=now)
    # Also where nothing is left to count from.
    known = {"r": replace(known["ahead"], seen=later)}
    assert overdue(known, days=30, now=now) == ["r"]
    assert "later than the clock of this host" in sentences(known, now, days=30, now=now)[0]

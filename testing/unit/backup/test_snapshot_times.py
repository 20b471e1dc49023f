from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hgfleet.backup.restic import snapshot_times
from hgfleet.backup.restic.settings import Retention
from hgfleet.backup.restic.snapshot_times import (
    BACKDATED_TOLERANCE_SECONDS,
    CLOCK_TOLERANCE_SECONDS,
    Group,
    backdated,
    from_future,
    needed,
)

HOUR = 3600.0
DAY = 24 * HOUR
NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC).timestamp()
RETENTION = Retention(hours=48, days=35, months=12)


def snapshot(name: str, when: float, end: float | None = None) -> dict[str, Any]:
    texts = [datetime.fromtimestamp(time, UTC).isoformat() for time in (when, end or when)]
    summary = {"backup_start": texts[0], "backup_end": texts[1]} if end else None
    return {"id": name, "time": texts[0], "summary": summary}


def ids(snapshots: list[dict[str, Any]]) -> list[str]:
    return [taken["id"] for taken in snapshots]


def test_a_snapshot_later_than_the_clock_is_from_the_future_by_any_of_its_times() -> None:
    snapshots = [
        snapshot("good", NOW - DAY, NOW - DAY + 60),
        snapshot("ahead", NOW + CLOCK_TOLERANCE_SECONDS - 1),
        snapshot("late", NOW + CLOCK_TOLERANCE_SECONDS + 1),
        snapshot("ends-late", NOW - DAY, NOW + DAY),
        {"id": "year 0", "time": "0000-01-01T00:00:00Z"},
    ]
    assert ids(from_future(snapshots, NOW)) == ["late", "ends-late", "year 0"]


def test_a_new_snapshot_from_before_the_last_look_was_dated_back() -> None:
    looked = NOW - DAY
    snapshots = [
        snapshot("known", NOW - 9 * DAY),
        snapshot("since", NOW - HOUR),
        snapshot("began-before", looked - BACKDATED_TOLERANCE_SECONDS + 1),
        snapshot("back", looked - BACKDATED_TOLERANCE_SECONDS - 1),
    ]
    assert ids(backdated(snapshots, {"known"}, looked)) == ["back"]
    # Before the first look, every snapshot is new.
    assert backdated(snapshots, (), 0.0) == []


def hourly(days: int) -> list[dict[str, Any]]:
    return [snapshot(f"{hours}", NOW - hours * HOUR) for hours in range(24 * days)]


def plan(snapshots: list[dict[str, Any]], retention: Retention) -> Group:
    """Return the snapshots that restic keeps, for hosts with the zone UTC."""
    kept = {}
    for count, form in (
        (retention.hours, "%F %H"),
        (retention.days, "%F"),
        (retention.months, "%Y%m"),
    ):
        last: list[str] = []
        for taken in sorted(snapshots, key=lambda taken: str(taken["time"]), reverse=True):
            label = datetime.fromisoformat(taken["time"]).strftime(form)
            if label not in last and len(last) < count:
                last.append(label)
                kept[taken["id"]] = taken
    return Group(
        tuple(kept.values()), tuple(taken for taken in snapshots if taken["id"] not in kept)
    )


@pytest.mark.parametrize("retention", [RETENTION, Retention(0, 1, 0), Retention(1, 7, 2)])
def test_the_removals_of_restic_are_those_of_the_retention(retention: Retention) -> None:
    """At each minute of the day, with two snapshots in some hours and some hours without any."""
    snapshots = [taken for number, taken in enumerate(hourly(400)) if number % 7]
    snapshots += [
        snapshot(f"again {hours}", NOW - hours * HOUR + 120) for hours in range(0, 900, 5)
    ]
    for minutes in range(2, 60, 14):
        moved = [taken for taken in snapshots if snapshot_times.seconds(taken["time"]) <= NOW]
        group = plan(moved, retention)
        assert group.remove
        assert needed([group], retention, NOW + minutes * 60) == []


def test_what_the_retention_needs_by_the_clock_stays() -> None:
    genuine = hourly(3)
    # Others took the places of all of them: restic keeps so many hours, with any times.
    forged = tuple(snapshot(f"forged {number}", NOW + number) for number in range(48))
    kept = needed([Group(forged, tuple(genuine))], RETENTION, NOW)
    # A snapshot of the same hour, or two hours later where the zone changes, stands in for three.
    assert len(kept) == 72 - 3
    # Where a later snapshot of its hour stays, a snapshot may go.
    group = Group(tuple(genuine), (snapshot("earlier", NOW - 5 * HOUR - 600),))
    assert needed([group], RETENTION, NOW) == []
    # A group does not stand in for another.
    part = Group((), (snapshot("part", NOW - 5 * HOUR),))
    assert ids(needed([group, part], RETENTION, NOW)) == ["part"]


def test_a_message_names_some_snapshots() -> None:
    assert snapshot_times.named(hourly(1), 2) == (
        "0 of 2026-11-24T12:30:00, 1 of 2026-11-24T11:30:00 and 22 more"
    )

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hgfleet.backup.restic.lock_removal import running, wrong

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


def lock(time: str) -> dict[str, Any]:
    return {"time": f"2026-11-24T{time}.123456789Z", "exclusive": False, "hostname": "hg1"}


def snapshot(begin: str, end: str | None) -> dict[str, Any]:
    start = f"2026-11-24T{begin}.5Z"
    summary = {"backup_start": start, "backup_end": f"2026-11-24T{end}.5Z"} if end else None
    return {"time": f"2026-11-24T{begin}.5Z", "summary": summary}


@pytest.mark.parametrize(
    ("locks", "snapshots", "expected"),
    [
        # Without a lock nothing runs, and before the first snapshot every lock counts.
        ([], [], []),
        (["11:59:00"], [], ["11:59:00"]),
        # Left by the backup that ended: its lock, and the lock that it renewed.
        (["11:40:00", "11:45:00"], [("11:40:01", "11:46:00")], []),
        # The next backup runs.
        (["11:40:00", "11:50:00"], [("11:40:01", "11:46:00")], ["11:50:00"]),
        # The newest end counts, in any order.
        (["11:50:00"], [("11:51:00", "11:52:00"), ("11:40:01", "11:46:00")], []),
        # Killed, and stale.
        (["11:29:59"], [("10:00:00", "10:01:00")], []),
        # Snapshots of a restic that does not record the end.
        (["11:50:00", "11:50:03"], [("11:50:01", None)], ["11:50:03"]),
    ],
)
def test_a_lock_counts_until_a_later_backup_has_ended(
    locks: list[str], snapshots: list[tuple[str, str | None]], expected: list[str]
) -> None:
    times = running([lock(time) for time in locks], [snapshot(*span) for span in snapshots], NOW)
    assert times == [f"2026-11-24T{time}.123456789Z" for time in expected]


def test_times_of_another_zone_are_compared_as_moments() -> None:
    taken = {"time": "2026-11-24T13:50:00+02:00"}
    assert running([taken], [snapshot("11:40:01", "11:46:00")], NOW) == [taken["time"]]
    assert running([taken], [snapshot("11:40:01", "11:51:00")], NOW) == []


@pytest.mark.parametrize("planted", [("12:30:00", None), ("11:00:00", "13:00:00")])
def test_a_snapshot_from_the_future_hides_no_backup_under_way(
    planted: tuple[str, str | None],
) -> None:
    snapshots = [snapshot(*planted), snapshot("11:40:01", "11:46:00")]
    assert running([lock("11:50:00")], snapshots, NOW) == [lock("11:50:00")["time"]]


def test_a_lock_from_the_future_delays_nothing_and_is_wrong() -> None:
    locks = [lock("11:50:00"), lock("12:05:00"), lock("12:30:00")]
    assert wrong(locks, NOW) == [locks[2]["time"]]
    assert running(locks, [], NOW) == [held["time"] for held in locks[:2]]

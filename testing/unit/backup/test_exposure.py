from __future__ import annotations

from typing import Any

import pytest

from hgfleet.backup import exposure
from hgfleet.backup.exposure import DAY_SECONDS

NOW = 100 * DAY_SECONDS
DRILLED = {"time": NOW - DAY_SECONDS, "push_id": 7}


def lost(backup: Any, drill: Any, mirrors: int = 0) -> tuple[int | None, int | None, str]:
    exposed = exposure.of("x", 10, backup, drill, mirrors=mirrors, now=NOW, drill_days=35)
    return exposed.host, exposed.site, exposed.reason


def test_pushes_since_the_backup_are_lost_with_the_site() -> None:
    assert lost({"push_id": 7}, DRILLED) == (3, 3, "")
    assert lost({"push_id": 7}, DRILLED, mirrors=1) == (0, 3, "")


@pytest.mark.parametrize(
    ("backup", "drill", "reason"),
    [
        (None, DRILLED, "no backup"),
        ({"push_id": 10}, None, "no backup of it was restored yet"),
        (
            {"push_id": 10},
            {"time": NOW, "error": "bad"},
            "its newest backup cannot be restored: bad",
        ),
        (
            {"push_id": 10},
            DRILLED | {"time": NOW + DAY_SECONDS},
            "its last drill is later than the clock of this host, and counts as none",
        ),
        (
            {"push_id": 10},
            {"time": NOW},
            "its last drill does not say up to which push it restored",
        ),
        (
            {"push_id": 10},
            {"time": NOW - 36 * DAY_SECONDS},
            "its last drill was 36 days ago",
        ),
    ],
)
def test_a_backup_that_was_not_restored_counts_as_none(
    backup: Any, drill: Any, reason: str
) -> None:
    assert lost(backup, drill) == (None, None, reason)
    assert lost(backup, drill, mirrors=2) == (0, None, reason)


def test_backups_since_the_drill_are_no_proof() -> None:
    exposed = exposure.of("x", 10, {"push_id": 9}, DRILLED, mirrors=0, now=NOW, drill_days=35)
    assert (exposed.site, exposed.undrilled, exposed.reason) == (3, 2, "")


def test_after_a_failed_drill_the_older_backup_that_it_restored_counts() -> None:
    failed = DRILLED | {"push_id": 4, "error": "bad"}
    assert lost({"push_id": 10}, failed) == (6, 6, "its newest backup cannot be restored: bad")


MIRROR = {"live": True, "caught_up": True, "waiting": 0, "parked": 0}


@pytest.mark.parametrize(
    "change", [{"live": False}, {"caught_up": False}, {"waiting": 1}, {"parked": 1}]
)
def test_a_mirror_counts_if_it_has_everything(change: dict[str, Any]) -> None:
    state = {"role": "primary", "waiting": 0, "mirrors": {"b": MIRROR, "a": MIRROR | change}}
    assert exposure.complete_mirrors(state) == ["b"]
    assert exposure.complete_mirrors(state | {"waiting": 2}) == []


def test_a_mirror_that_has_caught_up_has_a_primary() -> None:
    assert exposure.complete_mirrors({"role": "mirror", "caught_up": True}) == ["the primary"]
    assert exposure.complete_mirrors({"role": "mirror", "caught_up": False}) == []
    for name in ("behind", "waiting", "parked_repositories"):
        state = {"role": "mirror", "caught_up": True, name: 1}
        assert exposure.complete_mirrors(state) == []
    assert exposure.complete_mirrors({}) == []


def test_a_drill_of_a_former_repository_of_the_path_proves_nothing() -> None:
    own, other = {"identity": "a" * 32}, {"identity": "b" * 32}
    assert exposure.drill_of(own, own | {"time": 1}) == own | {"time": 1}
    assert exposure.drill_of(own, other) is None
    # A drill of a release before has no identity.
    assert exposure.drill_of(own, {"time": 1}) == {"time": 1}
    assert exposure.drill_of({}, {"time": 1}) == {"time": 1}
    assert exposure.drill_of(None, other) == other

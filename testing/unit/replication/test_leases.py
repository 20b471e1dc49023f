"""Membership of mirrors by lease."""

from __future__ import annotations

import pytest

from hgfleet.replication.primary.leases import Members
from hgfleet.replication.protocol.messages import Lease


def beat(host: str, *, boot: str = "b", caught_up: bool = True) -> Lease:
    return Lease(host, boot, caught_up, 0, 0, 1000.0)


@pytest.fixture
def members() -> Members:
    return Members(("hgweb2", "hgweb1"), 5.0)


def test_a_mirror_is_a_member_from_its_heartbeat_to_the_end_of_its_lease(members: Members) -> None:
    assert members.live(0) == ()
    members.hear(beat("hgweb1"), 0)
    assert members.live(4.9) == ("hgweb1",)
    assert members.live(5) == ()
    members.hear(beat("hgweb1"), 6)
    assert members.live(6) == ("hgweb1",)


def test_a_mirror_joins_when_it_has_caught_up_and_stays_while_it_lags_for_a_moment(
    members: Members,
) -> None:
    members.hear(beat("hgweb1", caught_up=False), 0)
    assert members.live(0) == ()
    members.hear(beat("hgweb1"), 1)
    members.hear(beat("hgweb1", caught_up=False), 4)
    assert members.live(5.9) == ("hgweb1",)
    members.hear(beat("hgweb1", caught_up=False), 6)
    assert members.live(6) == ()


@pytest.mark.parametrize("boot", ["b", "other"])
def test_a_mirror_that_was_away_or_started_anew_has_to_catch_up_again(
    members: Members, boot: str
) -> None:
    members.hear(beat("hgweb1"), 0)
    members.hear(beat("hgweb1", boot=boot, caught_up=False), 4 if boot == "other" else 5.5)
    assert members.live(5.6) == ()


def test_changes_are_told_once(members: Members) -> None:
    members.hear(beat("hgweb1"), 0)
    assert members.change(0) == (["hgweb1"], [])
    assert members.change(1) == ([], [])
    assert members.change(9) == ([], ["hgweb1"])


def test_a_message_counts_on_the_subject_of_its_own_mirror_alone() -> None:
    members = Members(("hgweb1.example", "hgweb2"), 5.0)
    assert members.refusal("hgfleet.leases.hgweb1_example", "hgweb1.example") is None
    assert "arrived on" in str(members.refusal("hgfleet.leases.hgweb2", "hgweb1.example"))
    assert "not among the mirrors" in str(members.refusal("hgfleet.leases.x", "x"))


def test_the_report_names_each_mirror_and_a_wrong_clock(members: Members) -> None:
    members.hear(beat("hgweb1"), 10)
    assert members.report(11, 7400.0) == {
        "hgweb1": {
            "live": True,
            "lease_until": 7404.0,
            "caught_up": True,
            "waiting": 0,
            "parked": 0,
            "clock_ahead_seconds": -6400.0,
        },
        "hgweb2": {"live": False},
    }

"""The way back of a host, from the record of its deploys."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ansible"))

from deploy import ways  # noqa: E402
from deploy.ways import Way  # noqa: E402

FIRST = Way("0.1.0-aaaaaaaaaaaa", "tree1", "site1")
SECOND = Way("0.1.0-bbbbbbbbbbbb", "tree2", "site2")


def test_after_a_deploy_the_way_back_is_what_was_there_before() -> None:
    record = ways.done(FIRST, SECOND)
    assert ways.present(record, SECOND.release) == SECOND
    assert ways.back(record, SECOND.release) == FIRST


def test_after_a_deploy_that_was_killed_it_is_what_the_last_finished_one_left() -> None:
    record = ways.begun(ways.done(None, FIRST), FIRST.release)
    for current in (FIRST.release, SECOND.release):
        assert ways.back(record, current) == FIRST
        assert ways.present(record, current) == FIRST
        # The next deploy is killed too.
        assert ways.back(ways.begun(record, current), current) == FIRST


def test_after_a_rollback_nothing_is_known_before() -> None:
    assert ways.back(ways.done(None, FIRST), FIRST.release) is None


def test_a_release_that_was_changed_by_hand_has_no_tree_and_goes_back_to_the_last_deploy() -> None:
    record = ways.done(None, FIRST)
    assert ways.present(record, "0.1.0-cccccccccccc") == Way("0.1.0-cccccccccccc")
    assert ways.back(record, "0.1.0-cccccccccccc") == FIRST


def test_a_host_without_a_record_has_its_release_alone() -> None:
    assert ways.present({}, FIRST.release) == Way(FIRST.release)
    assert ways.back({}, FIRST.release) is None
    assert ways.begun({}, FIRST.release)["now"] == asdict(Way(FIRST.release))


def test_a_damaged_record_is_none() -> None:
    assert ways.back({"now": "x", "before": 3}, FIRST.release) is None

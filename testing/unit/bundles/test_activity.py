"""The busiest repositories of the last day."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.activity import OTHER, PRIVATE, Activity, busiest, of
from hgfleet.bundles.decide.demand import Demand
from hgfleet.bundles.hg import recent_pushes
from testing.support.pushlog_lines import START_MS, Chain, node_of

if TYPE_CHECKING:
    from pathlib import Path

START = datetime.fromtimestamp(START_MS / 1000, UTC)


def test_the_busiest_have_names_and_the_others_are_one_sum() -> None:
    activity = {f"r{number:02}": Activity(pushes=number) for number in range(30)}
    result = busiest(activity, activity, most=3)
    assert result == {
        "r29": Activity(29),
        "r28": Activity(28),
        "r27": Activity(27),
        OTHER: Activity(sum(range(27))),
    }


def test_no_private_repository_has_a_name() -> None:
    activity = {
        "secret/a": Activity(50),
        "secret/b": Activity(1, 2, 3, 0.5, 9),
        "open": Activity(1),
    }
    assert busiest(activity, {"open"}) == {
        "open": Activity(1),
        PRIVATE: Activity(51, 2, 3, 0.5, 9),
    }


def test_a_repository_without_activity_has_no_name() -> None:
    assert busiest({"a": Activity(), "b": Activity()}, {"a", "b"}) == {OTHER: Activity()}


def test_activity_is_pushes_and_demand() -> None:
    assert of(2, None) == Activity(2)
    assert of(2, Demand(1, 3, 0.5, 900)) == Activity(2, 1, 3, 0.5, 900)


def test_pushes_of_the_day_are_counted_and_older_logs_are_not_read(tmp_path: Path) -> None:
    log = tmp_path / ".hg/store/pushlog"
    log.parent.mkdir(parents=True)
    assert recent_pushes.count(tmp_path, START) == 0
    chain = Chain(log)
    for number in range(3):
        chain.push(node_of(number))
    assert recent_pushes.count(tmp_path, START - timedelta(days=1)) == 3
    assert recent_pushes.count(tmp_path, START + timedelta(days=100)) == 0
    log.write_bytes(b"damaged\n")
    assert recent_pushes.count(tmp_path, START) == 0
    old = (START - timedelta(days=2)).timestamp()
    os.utime(log, (old, old))
    assert recent_pushes.count(tmp_path, START) == 0


def test_the_last_removal_of_changesets_counts_since_a_time(tmp_path: Path) -> None:
    log = tmp_path / ".hg/store/pushlog"
    log.parent.mkdir(parents=True)
    day = timedelta(days=1)
    assert recent_pushes.removal(tmp_path, START - day) is None
    chain = Chain(log)
    chain.push(node_of(0))
    assert recent_pushes.removal(tmp_path, START - day) is None
    removed = chain.push(kind="strip").time
    chain.push(node_of(1))
    removal = recent_pushes.removal(tmp_path, START - day)
    assert removal is not None
    assert removal.timestamp() * 1000 == pytest.approx(removed)
    assert recent_pushes.removal(tmp_path, removal + timedelta(seconds=1)) is None
    log.write_bytes(b"damaged\n")
    assert recent_pushes.removal(tmp_path, START - day) is None

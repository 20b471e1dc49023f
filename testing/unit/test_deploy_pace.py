"""The expected time left of a deploy comes from the run before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ansible"))

from deploy.pace import START, Pace  # noqa: E402

BEFORE = {START: 2.0, "base": 10.0, "web": 30.0, "proxy": 5.0}


@pytest.mark.parametrize(
    ("play", "at", "ends"),
    [("base", 2.0, 47.0), ("web", 12.0, 47.0), ("web", 32.0, 67.0), ("proxy", 1.0, 6.0)],
)
def test_the_rest_is_expected_to_take_as_long_as_it_did(play: str, at: float, ends: float) -> None:
    assert Pace(BEFORE).begin(play, at) == ends


@pytest.mark.parametrize("before", [{}, BEFORE])
def test_no_end_is_foretold_in_a_play_that_is_new(before: dict[str, float]) -> None:
    assert Pace(before).begin("ssh", 3.0) is None


def test_the_seconds_of_a_run_are_kept_for_the_next() -> None:
    pace = Pace({})
    for play, at in (("base", 2.0), ("web", 12.0), ("proxy", 42.0)):
        pace.begin(play, at)

    assert pace.end(47.0) == BEFORE


def test_a_run_without_plays_is_all_start() -> None:
    assert Pace({}).end(1.5) == {START: 1.5}

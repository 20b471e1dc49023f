"""A backup restores to the state after each push before it, by the time of that push."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.point import recovered, rewind
from hgfleet.backup.point.capture import capture
from hgfleet.pushlog.record import Heads
from testing.integration.backup.pushes import described
from testing.integration.backup.test_capture import copy, verify
from testing.integration.support.primary import Primary

if TYPE_CHECKING:
    from pathlib import Path

PUSHES = 40
EVERY = 3
"""Each third push is restored to; a copy and its verification take half a second."""


@pytest.mark.parametrize("seed", [1, 2])
def test_every_earlier_state_comes_back(tmp_path: Path, seed: int) -> None:
    primary, chance = Primary(tmp_path / "repository"), random.Random(seed)
    states = []
    for _ in range(PUSHES):
        primary.push_anything(chance)
        states.append(described(primary.path))
    point = capture(primary.path / ".hg", "team/x")
    kinds = set()
    for entry in primary.entries()[::EVERY]:
        record = entry.record
        target = tmp_path / str(record.id)
        copy(primary.path, target)
        recovered.rebuild(target / ".hg", point)

        rewound = rewind.rewind(target / ".hg", point, record.time / 1000)

        assert rewound.push_id == record.id
        assert described(target) == states[record.id - 1]
        assert Heads.digest_of(described(target)["heads"]) == rewound.heads
        verify(target)
    for entry in primary.entries():
        record = entry.record
        kinds |= {
            name
            for name in ("changesets", "phases", "bookmarks", "markers")
            if getattr(record, name)
        }
    assert kinds == {"changesets", "phases", "bookmarks", "markers"}


def test_a_time_before_the_first_push_cannot_be_reached(tmp_path: Path) -> None:
    primary = Primary(tmp_path / "repository")
    primary.push_commits(2)
    point = capture(primary.path / ".hg", "team/x")
    copy(primary.path, tmp_path / "copy")
    recovered.rebuild(tmp_path / "copy/.hg", point)
    before = primary.entries()[0].record.time / 1000 - 1
    with pytest.raises(rewind.UnreachableError, match="no push up to that time"):
        rewind.rewind(tmp_path / "copy/.hg", point, before)

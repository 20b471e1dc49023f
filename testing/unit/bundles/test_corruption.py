"""Times at which each place last returned a corrupt bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.stores import corruption

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_finding_at_each_place_is_kept() -> None:
    known = {"s3-1": 5.0, "s3-2": 3.0}
    assert corruption.merged(known, {"s3-1": 2.0, "s3-2": 9.0, "pull bundles": 0.0}) == {
        "s3-1": 5.0,
        "s3-2": 9.0,
        "pull bundles": 0.0,
    }


def test_findings_of_several_runs_are_added(tmp_path: Path) -> None:
    file = tmp_path / corruption.NAME
    corruption.note(tmp_path, {"s3-1": 7.0})
    corruption.note(tmp_path, {"s3-1": 0.0, "s3-2": 0.0})
    assert corruption.parse(file.read_bytes()) == {"s3-1": 7.0, "s3-2": 0.0}
    assert file.stat().st_mode & 0o777 == 0o644
    # A run without findings leaves the file as it is.
    before = file.stat().st_ino
    corruption.note(tmp_path, {"s3-1": 0.0})
    assert file.stat().st_ino == before


def test_a_damaged_file_is_replaced_by_the_next_finding(tmp_path: Path) -> None:
    (tmp_path / corruption.NAME).write_text('{"format": 1, "pla')
    corruption.note(tmp_path, {"s3-1": 7.0})
    assert corruption.parse((tmp_path / corruption.NAME).read_bytes()) == {"s3-1": 7.0}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 9, "places": {}}', '{"format": 1, "places": 3}']
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|not the findings|got the format"):
        corruption.parse(text)

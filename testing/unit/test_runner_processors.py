from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.runner.processors import shared_by_nice_value

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("before", ["0\n", "1\n"])
def test_groups_of_sessions_are_off_during_a_run_and_then_as_they_were(
    tmp_path: Path, before: str
) -> None:
    switch = tmp_path / "switch"
    switch.write_text(before)

    def run() -> None:
        with shared_by_nice_value(switch):
            assert switch.read_text() == "0\n"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert switch.read_text() == before


def test_a_machine_without_groups_of_sessions_stays_as_it_is(tmp_path: Path) -> None:
    with shared_by_nice_value(tmp_path / "none" / "switch"):
        pass
    assert not (tmp_path / "none").exists()

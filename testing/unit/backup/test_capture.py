"""The wait for a repository whose files keep changing ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup.point import capture
from hgfleet.core.errors import HostError, TemporaryError

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """A clock that goes on at each pause."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(capture.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(capture.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 10 * capture.PATIENCE_SECONDS, "it waits for ever"


def test_a_repository_that_changes_for_a_while_is_captured_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks: list[Path] = []

    def attempt(control: Path, _path: str) -> Any:
        looks.append(control)
        if len(looks) < 3:
            raise capture._ChangingError("it changes")
        return "a point"

    Clock(monkeypatch)
    monkeypatch.setattr(capture, "_attempt", attempt)
    assert capture.capture(tmp_path / "r/.hg", "r") == "a point"


def test_a_repository_that_changes_all_the_time_is_left_for_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def attempt(_control: Path, _path: str) -> Any:
        raise capture._ChangingError("it changes")

    clock = Clock(monkeypatch)
    monkeypatch.setattr(capture, "_attempt", attempt)
    with pytest.raises(TemporaryError, match=f"{tmp_path}/r recover"):
        capture.capture(tmp_path / "r/.hg", "r")
    assert clock.now > capture.PATIENCE_SECONDS


def test_files_that_cannot_be_read_are_no_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def attempt(_control: Path, _path: str) -> Any:
        raise PermissionError("not yours")

    monkeypatch.setattr(capture, "_attempt", attempt)
    with pytest.raises(HostError, match="r: not yours"):
        capture.capture(tmp_path / "r/.hg", "r")

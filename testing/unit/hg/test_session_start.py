"""Sessions that start while the release changes, with the program that changes it."""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.hg.sessions import session_start
from testing.support import loading

if TYPE_CHECKING:
    from pathlib import Path


def _switch() -> Any:
    return loading.module("ansible/roles/release/files/switch.py")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for version in ("1", "2"):
        (tmp_path / "releases" / version).mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/1")
    (tmp_path / "hgrc").write_text("of 1")
    (tmp_path / "hgrc.next").write_text("of 2")
    (tmp_path / "sessions").mkdir()
    for name in ("gate", "starting"):
        (tmp_path / "sessions" / name).touch()
    return tmp_path


def change(place: Path) -> float:
    return float(_switch().switch("2", [place / "hgrc"], place, place / "sessions"))


def test_release_and_settings_change_together(place: Path) -> None:
    assert change(place) < 1
    assert (place / "current").resolve().name == "2"
    assert (place / "hgrc").read_text() == "of 2"
    assert not (place / "hgrc.next").exists()


def test_a_session_that_is_starting_has_read_all_before_the_change(place: Path) -> None:
    session_start.begin(str(place / "sessions"))
    changing = threading.Thread(target=change, args=(place,))
    changing.start()
    try:
        until = time.monotonic() + 10
        while _can_share(place / "sessions/gate") and time.monotonic() < until:
            time.sleep(0.01)
        # The change has begun: new sessions wait, and this session reads the old settings.
        assert (place / "hgrc").read_text() == "of 1"
        assert (place / "current").resolve().name == "1"
    finally:
        session_start.done()
        changing.join()
    assert (place / "hgrc").read_text() == "of 2"


def _can_share(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_session_that_begins_during_the_change_waits_for_it(place: Path) -> None:
    switch = _switch()
    seen = []

    def session() -> None:
        session_start.begin(str(place / "sessions"))
        seen.append((place / "hgrc").read_text())
        session_start.done()

    with switch._held(place / "sessions"):
        held = threading.Thread(target=session)
        held.start()
        held.join(0.2)
        assert held.is_alive()
        (place / "hgrc.next").replace(place / "hgrc")
    held.join(10)
    assert seen == ["of 2"]


def test_a_change_does_not_wait_for_ever_for_a_session_that_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = _switch()
    monkeypatch.setattr(switch, "PATIENCE_SECONDS", 0.5)
    with contextlib.ExitStack() as sessions:
        for name in ("gate", "starting"):
            file = sessions.enter_context((place / "sessions" / name).open())
            fcntl.flock(file, fcntl.LOCK_SH)
        held = switch.switch("2", [place / "hgrc"], place, place / "sessions")
    # For both locks together.
    assert 0.5 <= held < 1
    assert (place / "current").resolve().name == "2"


def test_a_host_without_the_locks_holds_no_session(tmp_path: Path) -> None:
    begin = time.monotonic()
    session_start.begin(str(tmp_path / "missing"))
    assert time.monotonic() - begin < session_start.PATIENCE_SECONDS / 2


def test_a_process_of_the_release_before_is_of_another_release(place: Path) -> None:
    current = str(place / "current")
    assert not session_start.is_of_another_release(str(place / "releases/1"), current)
    assert session_start.is_of_another_release(str(place / "releases/2"), current)
    assert not session_start.is_of_another_release("/usr", current)

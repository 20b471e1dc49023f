"""Temporary files of a run are in RAM where it has room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.tests import scratch

GIB = 1024**3


def place(free: int, flags: int = 0) -> os.statvfs_result:
    """Return the answer of statvfs for a file system with so many free bytes."""
    blocks = free // 4096
    return os.statvfs_result((4096, 4096, blocks, blocks, blocks, 100, 100, 100, flags, 255))


@pytest.mark.parametrize(
    ("free", "memory", "flags", "fits"),
    [
        (20 * GIB, 20 * GIB, os.ST_NODEV | os.ST_NOSUID, True),
        (64 * 1024**2, 20 * GIB, 0, False),
        (20 * GIB, 4 * GIB, 0, False),
        (20 * GIB, 20 * GIB, os.ST_NOEXEC, False),
    ],
)
def test_ram_is_taken_if_the_files_fit_and_programs_may_run(
    free: int, memory: int, flags: int, fits: bool
) -> None:
    assert scratch.has_room(place(free, flags), memory) is fits


def test_available_memory_is_read_as_linux_tells_it() -> None:
    assert scratch.available_memory("MemTotal:  24 kB\nMemAvailable:   12 kB\n") == 12 * 1024
    assert scratch.available_memory("MemTotal:  24 kB\n") == 0


def test_the_folder_is_named_to_programs_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "has_room", lambda *_: True)
    monkeypatch.delenv("TMPDIR", raising=False)

    (tmp_path / "hg0").symlink_to("/nowhere")  # by another user of the machine

    with scratch.folder(tmp_path) as first, scratch.folder(tmp_path) as second:
        assert (first["TMPDIR"], second["TMPDIR"]) == (f"{tmp_path}/hg1", f"{tmp_path}/hg2")
        made = Path(first["TMPDIR"])
        assert made.stat().st_mode & 0o777 == 0o700
        (made / "file").touch()

    assert [path.name for path in tmp_path.iterdir()] == ["hg0"]


def test_a_folder_that_a_person_has_chosen_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "has_room", lambda *_: True)
    monkeypatch.setenv("TMPDIR", "/srv/scratch")

    with scratch.folder(tmp_path) as variables:
        assert variables == {}


@pytest.mark.parametrize("path", ["full", "missing"])
def test_without_room_the_files_stay_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "full").mkdir()
    monkeypatch.setattr(scratch, "has_room", lambda *_: False)
    monkeypatch.delenv("TMPDIR", raising=False)

    with scratch.folder(tmp_path / path) as variables:
        assert variables == {}

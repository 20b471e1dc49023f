"""A replaced file is old or new as a whole, with its mode, with any obstacle in the way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import files

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("durable", [True, False])
def test_the_content_and_the_mode_are_replaced(tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    before = os.umask(0o077)
    try:
        files.replace(target, "né", mode=0o640, durable=durable)
    finally:
        os.umask(before)
    assert target.read_bytes() == "né".encode()
    assert mode(target) == 0o640
    files.replace(target, b"\xff")
    assert target.read_bytes() == b"\xff"
    assert mode(target) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.replace("file", "one")
    assert (tmp_path / "file").read_text() == "one"


def test_a_reader_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with target.open() as reader:
        files.replace(target, "new")
        assert reader.read() == "old"


def test_nothing_that_lies_at_the_temporary_name_is_written_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    target = tmp_path / "file"
    (tmp_path / ".file.new").symlink_to(elsewhere)
    files.replace(target, "one")
    os.link(elsewhere, tmp_path / "t")
    files.replace(target, "two", temporary="t")
    assert (elsewhere.read_text(), target.read_text()) == ("kept", "two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "file"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", str(descriptor))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace(target, "new")
    assert target.read_text() == "old"


def test_a_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    with files.open_folder(tmp_path) as folder:
        files.replace_link_at(folder, "link", "one")
        (tmp_path / ".link.new").write_text("left by a killed run")
        files.replace_link_at(folder, "link", "two")
    assert (tmp_path / "link").readlink().name == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_file_and_a_folder_can_be_synced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    files.sync(file, 0o600)
    files.sync(tmp_path)
    assert mode(file) == 0o600


def test_a_repository_has_one_file_name() -> None:
    assert files.file_name("team/project") == "team+project"
    assert files.repository_of("team+project") == "team/project"

"""The sync of a file system, and the setting to do without it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from hgfleet.core import durable
from hgfleet.core.errors import HostError


def test_a_folder_of_any_file_system_is_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("data")
    durable.sync(tmp_path)


def test_a_missing_folder_and_a_file_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("data")
    for name in ("missing", "file"):
        with pytest.raises(OSError, match=name):
            durable.sync(tmp_path / name)


class Kernel:
    """Linux, which reports a failed write once to each descriptor that was open then.

    A descriptor that was opened later gets the report only if no other descriptor had it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lost, self._is_heard, self._open = 0, True, os.open
        self._heard: dict[int, int] = {}
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: self)

    def lose(self) -> None:
        self._lost, self._is_heard = self._lost + 1, False

    def open(self, *arguments: Any) -> int:
        descriptor = self._open(*arguments)
        self._heard[descriptor] = self._lost - (not self._is_heard)
        return descriptor

    def syncfs(self, descriptor: int) -> int:
        is_news, self._heard[descriptor] = self._heard[descriptor] < self._lost, self._lost
        if is_news:
            self._is_heard = True
            ctypes.set_errno(5)
        return -is_news


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_disk_that_does_not_confirm_is_an_error(tmp_path: Path, kernel: Kernel) -> None:
    kept = durable.Kept(tmp_path)
    kernel.lose()
    with pytest.raises(OSError, match="Input/output error"):
        durable.sync(tmp_path)
    with pytest.raises(HostError, match="does not confirm its writes"):
        kept.confirm()
    kept.confirm()
    durable.sync(tmp_path)


def test_a_disk_that_was_opened_before_hears_what_another_process_has_heard(
    tmp_path: Path, kernel: Kernel
) -> None:
    with durable.Disk(tmp_path) as disk:
        kernel.lose()
        with pytest.raises(OSError, match="Input/output error"):
            durable.sync(tmp_path)
        # The reason: a descriptor that is opened now gets no report.
        durable.sync(tmp_path)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync()
        disk.sync()


def opened() -> int:
    """Return the number of descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_disk_is_closed_once(tmp_path: Path) -> None:
    before = opened()
    for _ in range(3):
        with durable.Disk(tmp_path) as disk:
            disk.sync()
        disk.close()
        durable.Disk(tmp_path)
        durable.sync(tmp_path)
        durable.Kept(tmp_path).confirm()
        with pytest.raises(OSError, match="none"):
            durable.Disk(tmp_path / "none")
    assert opened() == before


def test_a_program_keeps_its_disk_and_sees_another_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    synced: list[int] = []
    made = durable.Disk.__init__

    def observed(disk: durable.Disk, folder: Any) -> None:
        opened.append(str(folder))
        made(disk, folder)

    monkeypatch.setattr(durable.Disk, "__init__", observed)
    monkeypatch.setattr(durable.Disk, "sync", lambda disk: synced.append(id(disk)))
    place = tmp_path / "repositories"
    kept = durable.Kept(place)
    with pytest.raises(HostError, match="No such file or directory"):
        kept.confirm()
    place.mkdir()
    kept.confirm()
    kept.confirm()
    assert len(opened) == 3
    # Another folder of the file system needs no other descriptor.
    place.rename(tmp_path / "away")
    place.mkdir()
    kept.confirm()
    assert len(opened) == 3
    place.rmdir()
    place.symlink_to("/proc/self")
    del synced[:]
    kept.confirm()
    assert len(opened) == 4
    # The former file system has writes, too.
    assert len(set(synced)) == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True),
        ("[hgfleet]\ndurable = yes\n", True),
        ("[hgfleet]\ndurable = no\n", False),
        ("[hgfleet]\ndurable=False\n", False),
        ("[hgfleet]\ndurable-not = no\n", True),
    ],
)
def test_a_host_syncs_unless_its_hgrc_says_otherwise(
    tmp_path: Path, text: str, wanted: bool
) -> None:
    (tmp_path / "hgrc").write_text(text)
    assert durable.is_wanted_by(tmp_path / "hgrc") is wanted
    assert durable.is_wanted_by(tmp_path / "none")

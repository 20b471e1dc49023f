"""The sync of a file system, and the setting to do without it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import durable
from hgfleet.core.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_of_any_file_system_is_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("data")
    durable.sync(tmp_path)


def test_a_missing_folder_and_a_file_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("data")
    for name in ("missing", "file"):
        with pytest.raises(OSError, match=name):
            durable.sync(tmp_path / name)


def test_a_disk_that_does_not_confirm_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        def __init__(self, *_: object, **__: object) -> None: ...

        @staticmethod
        def syncfs(_descriptor: int) -> int:
            ctypes.set_errno(5)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Libc)
    with pytest.raises(OSError, match="Input/output error"):
        durable.sync(tmp_path)
    with pytest.raises(HostError, match="does not confirm its writes"):
        durable.confirm(tmp_path)


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

"""A session recognises the folder that it opened, also when another folder has its path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg.opened_place import OpenedPlace

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_is_there_until_it_is_moved_or_replaced(tmp_path: Path) -> None:
    place = tmp_path / ".hg"
    place.mkdir()
    opened = OpenedPlace(os.fsencode(place))
    assert opened.is_there()
    place.rename(tmp_path / "moved")
    assert not opened.is_there()
    place.mkdir()
    assert not opened.is_there()
    place.rmdir()
    (tmp_path / "moved").rename(place)
    assert opened.is_there()


def test_a_deleted_folder_is_not_taken_for_its_successor(tmp_path: Path) -> None:
    place = tmp_path / ".hg"
    place.mkdir()
    opened = OpenedPlace(os.fsencode(place))
    place.rmdir()
    place.mkdir()
    assert not opened.is_there()


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        OpenedPlace(os.fsencode(tmp_path / "none"))

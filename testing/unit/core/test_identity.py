from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / ".hg/store").mkdir(parents=True)
    return tmp_path


def test_an_identity_is_new_each_time() -> None:
    made = {identity.made() for _ in range(100)}
    assert len(made) == 100
    assert all(identity.is_identity(text) for text in made)


@pytest.mark.parametrize("wrong", ["", "1" * 31, "1" * 33, "A" * 32, "g" * 32, None, 7])
def test_what_is_no_identity_is_none(wrong: object) -> None:
    assert not identity.is_identity(wrong)


def test_the_file_has_what_was_written(place: Path) -> None:
    assert identity.of(place) == ""
    (place / identity.FILE).write_text(identity.text(ONE))
    assert identity.of(place) == ONE
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert identity.of("", descriptor) == ONE
    finally:
        os.close(descriptor)
    with pytest.raises(ValueError, match="expected 32 hexadecimal digits"):
        identity.text("x")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "long", "binary"])
def test_anything_else_in_its_place_is_none(place: Path, kind: str) -> None:
    file = place / identity.FILE
    if kind == "link":
        (place / "real").write_text(identity.text(ONE))
        file.symlink_to(place / "real")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"\xff" * 32 if kind == "binary" else ONE.encode() + b"\n\n")
    assert identity.of(place) == ""


def test_a_folder_is_taken_for_the_repository_that_it_is(place: Path) -> None:
    assert identity.problem(place, "") is None
    assert "a repository without identity, expected" in (identity.problem(place, ONE) or "")
    (place / identity.FILE).write_text(identity.text(ONE))
    assert identity.problem(place, ONE) is None
    assert f"got repository {ONE}, expected {TWO}" in (identity.problem(place, TWO) or "")

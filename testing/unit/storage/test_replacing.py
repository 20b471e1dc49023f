"""A repository that was made next to another, put in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.core.errors import TemporaryError
from hgfleet.storage.replacing import replace

if TYPE_CHECKING:
    from pathlib import Path

A, B = "1f2e" * 8, "3d4c" * 8


def folder(place: Path, named: str = "") -> Path:
    (place / ".hg/store").mkdir(parents=True)
    (place / "of").write_text(place.name)
    if named:
        (place / identity.FILE).write_text(identity.text(named))
    return place


def is_exchanged(old: Path, new: Path) -> bool:
    contents = (old / "of").read_text(), (new / "of").read_text()
    assert contents in (("new", "old"), ("old", "new"))
    assert not (old / ".hg/store/lock").is_symlink()
    return contents[0] == "new"


@pytest.mark.parametrize("named", [A, ""])
def test_the_new_one_comes_to_the_place_and_the_old_one_is_kept(tmp_path: Path, named: str) -> None:
    old, new = folder(tmp_path / "old", named), folder(tmp_path / "new", A)

    def may_replace() -> bool:
        # No push can come before the exchange.
        assert (old / ".hg/store/lock").is_symlink()
        return True

    assert replace(old, new, "team/tool", may_replace)
    assert is_exchanged(old, new)


def test_a_repository_that_went_on_stays(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", A), folder(tmp_path / "new", A)
    assert not replace(old, new, "team/tool", lambda: False)
    assert not is_exchanged(old, new)


def test_another_repository_stays(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", B), folder(tmp_path / "new", A)
    with pytest.raises(TemporaryError, match=f"team/tool: repository {B} is still there"):
        replace(old, new, "team/tool", lambda: True)
    assert not is_exchanged(old, new)


def test_a_repository_that_moved_meanwhile_is_left_alone(tmp_path: Path) -> None:
    new = folder(tmp_path / "new", A)
    with pytest.raises(TemporaryError, match="team/tool: it has moved in the meantime"):
        replace(tmp_path / "old", new, "team/tool", lambda: True)
    assert (new / "of").read_text() == "new"


def test_a_push_that_is_under_way_ends_first(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", A), folder(tmp_path / "new", A)

    def again() -> bool:
        with pytest.raises(TemporaryError, match="is under way"):
            replace(old, new, "team/tool", lambda: True)
        return False

    assert not replace(old, new, "team/tool", again)
    assert not is_exchanged(old, new)

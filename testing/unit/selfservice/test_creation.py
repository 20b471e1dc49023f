"""Which places of the disk are free for a new repository."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import AccessDeniedError, TemporaryError
from hgfleet.selfservice import creation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def repository(place: Path) -> None:
    (place / ".hg/store").mkdir(parents=True)
    (place / ".hg" / creation.MARK).write_text(creation.state(place))


def pushed_to(place: Path) -> None:
    repository(place)
    (place / ".hg/store/00changelog.i").write_bytes(b"a changeset")


def registered(place: Path) -> None:
    repository(place)
    (place / ".hg" / creation.MARK).unlink()


FREE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda place: place,
    "an empty folder": lambda place: place.mkdir(),
    "an empty repository of a session that was killed": repository,
}
TAKEN: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: place.write_text("x"),
    "a folder with something": lambda place: (place / "x").mkdir(parents=True),
    "a link to nothing": lambda place: place.symlink_to("missing"),
    "a link to an empty folder": lambda place: place.symlink_to(place.parent / "empty"),
    "a repository that is in service": registered,
    "a repository that somebody pushed to": pushed_to,
}


@pytest.mark.parametrize("make", FREE.values(), ids=FREE)
def test_a_free_place_is_empty_afterwards(tmp_path: Path, make: Callable[[Path], object]) -> None:
    place = tmp_path / "x"
    make(place)
    creation.clear(place, "people/bob/x")
    assert not place.exists() or not list(place.iterdir())
    assert {file.name for file in tmp_path.iterdir()} <= {"x"}


@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_a_taken_place_stays_as_it_is(tmp_path: Path, make: Callable[[Path], object]) -> None:
    place = tmp_path / "x"
    (tmp_path / "empty").mkdir()
    make(place)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(AccessDeniedError, match="people/bob/x is not available"):
        creation.clear(place, "people/bob/x")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_claim_of_a_folder_that_was_moved_away_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between the opening and the lock, the session before moved it to its place."""
    new = tmp_path / "new"

    def locked(_descriptor: int, _how: int) -> None:
        new.rename(tmp_path / "moved")
        new.mkdir()

    monkeypatch.setattr(creation.fcntl, "flock", locked)
    with (
        pytest.raises(TemporaryError, match="Another session"),
        creation._claimed(new, "people/bob/x"),
    ):
        pytest.fail("the folder of another session is claimed")


class Hg:
    """A clone that takes two looks, and copies half of the source before each."""

    returncode = 0

    def __init__(self) -> None:
        self.looks = 0

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.looks += 1
        if timeout is not None and self.looks < 3:
            raise subprocess.TimeoutExpired("hg", timeout)
        return "", ""


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"source": 4_000_000, "new": 1_000_000}, "copying: about 25 % of 4.0 MB"),
        # More than the source, for another way to store it; the end is the end of hg.
        ({"source": 4_000_000, "new": 9_000_000}, "copying: about 99 % of 4.0 MB"),
        ({"source": 0, "new": 0}, "copying: about 0 % of 0.0 MB"),
    ],
)
def test_a_copy_says_its_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sizes: dict[str, int], said: str
) -> None:
    told: list[str] = []
    context: Any = SimpleNamespace(progress=told.append, place=lambda path: tmp_path / path)
    size: Any = SimpleNamespace(
        expected=sizes["source"], check=lambda _new: sizes["new"], reserve=lambda: 0
    )
    repository = SimpleNamespace(path="source", identity="")
    source: Any = SimpleNamespace(repository=repository, size=size)
    monkeypatch.setattr(creation, "_start", lambda *_, **__: Hg())
    creation._copy(context, 0, source, tmp_path / "new")
    assert told == [said] * 2

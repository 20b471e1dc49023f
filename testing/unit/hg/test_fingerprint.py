from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg import fingerprint as state
from hgfleet.hg.fingerprint import SETTLED_NS, Fingerprint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def hg(tmp_path: Path) -> Path:
    folder = tmp_path / ".hg"
    (folder / "store").mkdir(parents=True)
    (folder / "requires").write_text("store\n")
    (folder / "store" / "00changelog.i").write_bytes(b"x" * 64)
    (folder / "bookmarks").write_text("a" * 40 + " mark\n")
    return folder


def test_the_same_files_are_the_same_state(hg: Path) -> None:
    files = state.paths(hg)
    assert state.read(files) == state.read(files)
    assert hash(state.read(files)) == hash(state.read(files))


APPENDED = [
    "store/00changelog.i",
    "store/obsstore",
    "store/pushlog",
    "hgrc",
    "clonebundles.manifest",
]
REPLACED = [
    *APPENDED,
    "store/phaseroots",
    "store/bookmarks",
    "store/requires",
    "store/narrowspec",
    "store/journal",
    "bookmarks",
    "bookmarks.current",
    "branch",
    "dirstate",
    "hgrc-not-shared",
    "localtags",
    "requires",
    "sharedpath",
]


def tick() -> None:
    """Let the clock that stamps files go on, as it has between any two real changes."""
    time.sleep(0.015)


@pytest.mark.parametrize("name", REPLACED)
def test_each_file_counts_when_it_appears_is_replaced_and_goes(hg: Path, name: str) -> None:
    files = state.paths(hg)
    path = hg / name
    path.unlink(missing_ok=True)
    seen = [state.read(files)]

    def differs() -> None:
        now = state.read(files)
        assert now not in seen
        seen.append(now)

    tick()
    path.write_bytes(b"one")
    differs()
    # As Mercurial replaces bookmarks and phases: same size, even the same time.
    tick()
    stat = path.stat()
    other = path.with_name(path.name + ".new")
    other.write_bytes(b"two")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.rename(path)
    differs()
    tick()
    path.unlink()
    differs()


@pytest.mark.parametrize("name", APPENDED)
def test_files_that_are_changed_in_place_count_too(hg: Path, name: str) -> None:
    files = state.paths(hg)
    path = hg / name
    path.write_bytes(b"one")
    before = state.read(files)
    with path.open("ab") as file:
        file.write(b"two")
    assert state.read(files) != before


def test_a_repository_without_a_store_of_its_own_never_settles(hg: Path) -> None:
    shutil.rmtree(hg / "store")
    (hg / "sharedpath").write_text("/elsewhere/.hg")
    before = state.read_repository(state.paths(hg))
    assert not before.is_settled()
    assert state.read_repository(state.paths(hg)) != before


def test_caches_of_mercurial_do_not_count(hg: Path) -> None:
    (hg / "cache").mkdir()
    files = state.paths(hg)
    before = state.read(files)
    tick()
    (hg / "cache" / "branch2-served").write_text("x")
    assert state.read(files) == before


def test_a_manifest_that_is_a_link_is_followed(hg: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.manifest"
    (hg / "clonebundles.manifest").symlink_to(target)
    files = state.paths(hg)
    dangling = state.read(files)
    target.write_text("https://bundles/one\n")
    assert state.read(files) != dangling


def test_a_state_is_settled_if_its_newest_change_was_old_when_it_was_read() -> None:
    changed = 1_000_000_000

    def is_settled(read_ns: int) -> bool:
        return Fingerprint((), changed, read_ns).is_settled()

    assert not is_settled(changed)
    assert not is_settled(changed + SETTLED_NS)
    assert is_settled(changed + SETTLED_NS + 1)
    assert not is_settled(0), "a clock that went back proves nothing"


def read_just_after_a_change(hg: Path) -> Fingerprint:
    """Change a file until it is read soon enough: a busy machine may pause in between."""
    while True:
        os.utime(hg / "store" / "00changelog.i")
        fingerprint = state.read(state.paths(hg))
        if fingerprint.read_ns <= fingerprint.changed_ns + SETTLED_NS:
            return fingerprint


def test_a_fresh_reading_never_settles_and_a_later_one_of_the_same_state_does(hg: Path) -> None:
    files = state.paths(hg)
    fresh = read_just_after_a_change(hg)
    deadline = fresh.changed_ns + SETTLED_NS
    while time.time_ns() <= deadline:
        time.sleep(0.005)
    later = state.read(files)
    assert later == fresh
    assert hash(later) == hash(fresh)
    assert (fresh.is_settled(), later.is_settled()) == (False, True)


def test_a_file_dated_into_the_past_has_still_just_changed(hg: Path) -> None:
    files = state.paths(hg)
    before = state.read(files)
    tick()
    os.utime(hg / "store" / "00changelog.i", ns=(1, 1))
    assert state.read(files).changed_ns > before.changed_ns

"""Remembered sizes of repositories, and the decision about a push that adds to them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.principal import Principal
from hgfleet.hg.store_size import BLOCK
from hgfleet.registry.dynamic import repository_sizes
from hgfleet.registry.dynamic.entry import Entry
from testing.support.user_repository_file import BOB, written

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"


@pytest.mark.parametrize(
    ("used", "growth", "allowed", "is_refused"),
    [
        (0, 5, 10, False),
        (5, 5, 10, False),
        (5, 6, 10, True),
        (20, 0, 10, False),
        (20, -5, 10, False),
        (20, 5, 0, False),
    ],
)
def test_a_push_above_the_limit_is_refused(
    used: int, growth: int, allowed: int, is_refused: bool
) -> None:
    assert (repository_sizes.refusal("bob", used, growth, allowed) is not None) is is_refused


def test_a_refusal_has_the_sizes_and_the_way_out() -> None:
    said = repository_sizes.refusal("bob", 3 * MIB, 4 * MIB, 5 * MIB)
    assert said == (
        "the repositories of bob would have 7.0 MiB, and the limit is 5.0 MiB (used: 3.0 MiB); "
        "archive and delete a repository, or ask an operator for more; nothing was changed"
    )
    # A reply to a push has 255 bytes, and names of people at most 32.
    longest = repository_sizes.refusal("b" * 32, 10**15, 10**15, 10**15)
    assert longest is not None
    assert len(longest) <= 255


@pytest.mark.parametrize(
    ("text", "size"),
    [("5 GB", 5 * 2**30), ("20mb", 20 * MIB), ("1k", 1024), ("7", 7), ("0", 0), ("much", 0)],
)
def test_sizes_are_read_as_mercurial_reads_them(text: str, size: int) -> None:
    assert repository_sizes.parse_size(text) == size


def test_a_size_is_measured_once_and_again_when_it_is_old_or_damaged(tmp_path: Path) -> None:
    store = tmp_path / ".hg/store"
    store.mkdir(parents=True)
    (store / "file").write_bytes(b"x" * 100)
    assert repository_sizes.remembered(tmp_path) == 2 * BLOCK
    (store / "file").write_bytes(b"x" * 3 * BLOCK)
    assert repository_sizes.remembered(tmp_path) == 2 * BLOCK
    note = tmp_path / ".hg" / repository_sizes.NAME
    old = time.time() - repository_sizes.RECOUNT_S - 1
    os.utime(note, (old, old))
    assert repository_sizes.remembered(tmp_path) == 4 * BLOCK
    note.write_text("half a")
    assert repository_sizes.remembered(tmp_path) == 4 * BLOCK
    assert repository_sizes.remembered(tmp_path / "none") == 0


def test_a_size_that_an_older_release_noted_is_measured_again(tmp_path: Path) -> None:
    """It was the size of the content."""
    (tmp_path / ".hg/store").mkdir(parents=True)
    (tmp_path / ".hg/hgfleet-size").write_text("5\n")
    assert repository_sizes.remembered(tmp_path) == BLOCK


@pytest.mark.parametrize(
    ("free", "reserved", "is_refused"),
    [(15, 0, False), (14, 0, True), (20, 5, False), (20, 6, True), (0, 0, True)],
)
def test_a_copy_leaves_as_much_of_the_disk_as_has_to_stay(
    free: int, reserved: int, is_refused: bool
) -> None:
    assert (repository_sizes.disk_refusal(5, free, reserved, 10) is not None) is is_refused


def test_a_refusal_of_the_disk_has_the_sizes_and_the_way_out() -> None:
    assert repository_sizes.disk_refusal(3 * MIB, 9 * MIB, 2 * MIB, 5 * MIB) == (
        "the disk of this service has 9.0 MiB left, 2.0 MiB of it for copies that are under way, "
        "and this copy needs 3.0 MiB where 5.0 MiB stay free; nothing was changed; tell the "
        "operators"
    )


def test_archived_repositories_of_the_owner_count(tmp_path: Path) -> None:
    (tmp_path / "dynamic").mkdir()
    made = "2026-11-21T00:00:00Z"
    file = written(
        tmp_path / "dynamic/registry.json",
        people__bob__x=BOB,
        people__bob__y=Entry("bob", "", made, archived=made),
        people__carol__z=Entry("carol", "", made),
    )
    owner = Principal("bob")
    assert repository_sizes.owned(file, owner) == ["people/bob/x", "people/bob/y"]


def test_repositories_of_a_former_person_of_the_name_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "dynamic").mkdir()
    made = "2026-11-21T00:00:00Z"
    file = written(
        tmp_path / "dynamic/registry.json",
        people__bob__x=Entry("bob", "", made, owner_id=FORMER),
        people__bob__y=Entry("bob", "", made, owner_id=TODAY),
        people__bob__z=Entry("bob", "", made),
    )
    owner = Principal("bob", person_id=TODAY)
    assert repository_sizes.owned(file, owner) == ["people/bob/y", "people/bob/z"]


def test_a_size_of_the_future_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / ".hg").mkdir()
    repository_sizes.remember(tmp_path, 5)
    assert repository_sizes.recorded(tmp_path) == 5
    os.utime(tmp_path / ".hg" / repository_sizes.NAME, (4e9, 4e9))
    assert repository_sizes.recorded(tmp_path) is None

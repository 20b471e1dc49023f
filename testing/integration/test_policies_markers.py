"""Obsolescence markers that hg cannot read back are refused in every repository."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

import pytest

from testing.integration.test_unknown_changesets import Served, bundle

if TYPE_CHECKING:
    from pathlib import Path


WORKING_DIRECTORY: Final = b"\xff" * 20


def marker(
    node: bytes, date: float, user: bytes, successors: bytes = b"", parents: bytes | None = None
) -> bytes:
    """Write a marker of version 1."""
    metadata = struct.pack(">BB", 4, len(user)) + b"user" + user
    nodes = node + successors + (parents or b"")
    size = struct.calcsize(">IdhHBBB") + len(nodes) + len(metadata)
    counts = len(successors) // 20, 3 if parents is None else len(parents) // 20
    return b"\x01" + struct.pack(">IdhHBBB", size, date, 0, 0, *counts, 1) + nodes + metadata


@pytest.mark.parametrize(
    ("date", "user", "said"),
    [
        (math.nan, b"mallory", b"has the date nan 0"),
        (math.inf, b"mallory", b"has the date inf 0"),
        (0.0, b"mallory\nobsolete:    by root", b"a control character in the user"),
    ],
)
def test_a_marker_that_cannot_be_read_back_is_refused(
    tmp_path: Path, date: float, user: bytes, said: bytes
) -> None:
    served = Served(tmp_path)
    store = served.path / ".hg/store/obsstore"
    before = store.read_bytes()

    done = served.send(
        bundle(b"obsmarkers", marker(bytes.fromhex(served.tip.decode()), date, user))
    )

    assert said in done.stdout + done.stderr
    assert store.read_bytes() == before
    assert served.pushes() == {"policies": 1}


@pytest.mark.parametrize("place", ["precursor", "successor", "parent"])
def test_a_marker_that_names_the_working_directory_is_refused(tmp_path: Path, place: str) -> None:
    served = Served(tmp_path)
    tip = bytes.fromhex(served.tip.decode())
    made = {
        "precursor": marker(WORKING_DIRECTORY, 0.0, b"alice", tip),
        "successor": marker(tip, 0.0, b"alice", WORKING_DIRECTORY),
        "parent": marker(tip, 0.0, b"alice", parents=WORKING_DIRECTORY),
    }
    store = served.path / ".hg/store/obsstore"
    before = store.read_bytes()

    done = served.send(bundle(b"obsmarkers", made[place]))

    assert b"the changeset ffffffffffff of 20 bytes, which no" in done.stdout + done.stderr
    assert store.read_bytes() == before
    assert served.pushes() == {"policies": 1}


def test_a_marker_with_names_of_another_length_is_refused(tmp_path: Path) -> None:
    served = Served(tmp_path)
    # The flag 2 says that names have 32 bytes.
    fixed = struct.pack(">IdhHBBB", struct.calcsize(">IdhHBBB32s"), 0.0, 0, 2, 0, 3, 0)

    done = served.send(bundle(b"obsmarkers", b"\x01" + fixed + b"\x11" * 32) + b"heads\n")

    assert done.returncode == 0, done.stderr
    assert b"the changeset 111111111111 of 32 bytes, which no" in done.stdout + done.stderr
    assert served.pushes() == {"policies": 1}


def test_a_marker_as_core_writes_it_is_taken_once(tmp_path: Path) -> None:
    served = Served(tmp_path)
    request = bundle(b"obsmarkers", marker(bytes.fromhex(served.tip.decode()), 1.5, b"alice"))
    assert served.send(request).returncode == 0
    store = served.path / ".hg/store/obsstore"
    before = store.read_bytes()

    assert served.send(request).returncode == 0
    assert store.read_bytes() == before
    assert served.pushes() == {"accepted": 2}

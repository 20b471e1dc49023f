"""Obsolescence markers that hg cannot read back are refused in every repository."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import pytest

from testing.integration.test_unknown_changesets import Served, bundle

if TYPE_CHECKING:
    from pathlib import Path


def marker(node: bytes, date: float, user: bytes) -> bytes:
    """Write a marker of version 1 for a changeset without a successor."""
    metadata = struct.pack(">BB", 4, len(user)) + b"user" + user
    size = struct.calcsize(">IdhHBBB20s") + len(metadata)
    return b"\x01" + struct.pack(">IdhHBBB20s", size, date, 0, 0, 0, 3, 1, node) + metadata


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


def test_a_marker_as_core_writes_it_is_taken_once(tmp_path: Path) -> None:
    served = Served(tmp_path)
    request = bundle(b"obsmarkers", marker(bytes.fromhex(served.tip.decode()), 1.5, b"alice"))
    assert served.send(request).returncode == 0
    store = served.path / ".hg/store/obsstore"
    before = store.read_bytes()

    assert served.send(request).returncode == 0
    assert store.read_bytes() == before
    assert served.pushes() == {"accepted": 2}

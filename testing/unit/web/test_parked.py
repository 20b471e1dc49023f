"""Parked repositories of a mirror, as its applier names them in a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet.web.requests.parked import Parked, parked_of

if TYPE_CHECKING:
    from pathlib import Path

ONE, OTHER = "a" * 32, "b" * 32


def state(*parked: str) -> bytes:
    return json.dumps({"caught_up": True, "unserved": parked}).encode()


def test_identities_are_read_and_paths_are_not() -> None:
    assert parked_of(state(ONE, "team/project", OTHER)) == {ONE, OTHER}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"unserved": 1}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_file_names_none(text: bytes) -> None:
    assert parked_of(text) == frozenset()


def test_what_is_no_identity_is_none() -> None:
    assert parked_of(json.dumps({"unserved": [ONE, 7, None, ["x"]]}).encode()) == {ONE}


def test_the_file_of_the_release_before_names_none() -> None:
    assert parked_of(json.dumps({"parked": {"team/project": "why"}}).encode()) == frozenset()


def test_the_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    parked = Parked(file)
    assert not parked.has(ONE)
    for names in ((ONE,), (OTHER,), ()):
        new = tmp_path / "new"
        new.write_bytes(state(*names))
        new.replace(file)
        assert [name for name in (ONE, OTHER) if parked.has(name)] == list(names)
        assert not parked.has("")
    file.unlink()
    assert not parked.has(ONE)


def test_a_host_that_is_no_mirror_has_none() -> None:
    assert not Parked(None).has(ONE)

"""Which locks are of an earlier boot of this host."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from hgfleet.hg import stale_lock

if TYPE_CHECKING:
    from pathlib import Path

OWN = b"hg1/f0000001"


@pytest.mark.parametrize(
    ("locker", "locked_at", "expected"),
    [
        (b"hg1/f0000002:77", 900, True),
        (b"hg1/f0000002:77", 999, False),
        (b"hg1/f0000002:77", 1100, False),
        (b"hg1/f0000001:77", 900, False),
        (b"hg2/f0000002:77", 900, False),
        (b"hg1:77", 900, False),
        (b"77", 900, False),
        (b"", 900, False),
    ],
)
def test_a_lock_of_another_namespace_from_before_the_start_is_stale(
    locker: bytes, locked_at: float, *, expected: bool
) -> None:
    assert stale_lock.is_of_earlier_boot(locker, OWN, locked_at, 1000) is expected
    assert not stale_lock.is_of_earlier_boot(locker, b"hg1", locked_at, 1000)


def test_the_start_of_this_namespace_is_in_the_past() -> None:
    assert 0 < stale_lock.started() < time.time()


def test_in_a_sandbox_without_those_files_systemd_tells_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def is_hidden(name: str, mode: str) -> NoReturn:
        raise FileNotFoundError(name, mode)

    socket = tmp_path / "notify"
    socket.touch()
    os.utime(socket, (1000, 1000))
    monkeypatch.setattr(stale_lock, "open", is_hidden, raising=False)
    monkeypatch.setattr(stale_lock, "SYSTEMD", str(socket))
    assert stale_lock.started.__wrapped__() == 1000
    socket.unlink()
    assert stale_lock.started.__wrapped__() == 0

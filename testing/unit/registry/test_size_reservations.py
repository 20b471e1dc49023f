"""Reservations of bytes: who sees them, and when they end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hgfleet.core.errors import TemporaryError
from hgfleet.registry.dynamic import size_reservations
from hgfleet.registry.dynamic.size_reservations import Reserved, locked, to_be_written

FORK = Reserved(100, 0, "people/bob/f")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return size_reservations.folder_of(f"{tmp_path}/registry.json")


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if path.suffix != ".lock")


def test_a_reservation_counts_for_its_owner_until_it_is_released(folder: str) -> None:
    with locked(folder, "bob") as bob:
        fork, push = bob.reserve(FORK), bob.reserve(Reserved(7))
        assert bob.reserved() == 107
        assert bob.reserved(own=fork) == 7
    # Names that begin or end alike are other people.
    for other in ("carol", "bob.0", "b", "bob.0.reserved"):
        with locked(folder, other) as lock:
            assert lock.reserved() == 0
    fork.release()
    with locked(folder, "bob") as bob:
        assert bob.reserved() == 7
    push.release()
    assert names(folder) == []


def test_a_fork_that_is_registered_counts_with_its_own_size(folder: str) -> None:
    with locked(folder, "bob") as bob:
        fork, push = bob.reserve(FORK), bob.reserve(Reserved(7))
        assert bob.reserved(["people/bob/f"]) == 7
    fork.release()
    push.release()


def test_the_disk_has_still_to_take_what_forks_have_not_written(folder: str) -> None:
    assert to_be_written(folder) == 0
    with locked(folder, "bob") as bob:
        fork, push = bob.reserve(FORK), bob.reserve(Reserved(7))
    with locked(folder, "carol") as carol:
        other = carol.reserve(Reserved(50, 0, "people/carol/f"))
    assert to_be_written(folder) == 150
    fork.note(Reserved(100, 80, "people/bob/f"))
    assert to_be_written(folder) == 70
    fork.note(Reserved(100, 120, "people/bob/f"))
    assert to_be_written(folder) == 50
    for reservation in (fork, push, other):
        reservation.release()
    assert to_be_written(folder) == 0


HOLDER = """
import os, subprocess, sys
from hgfleet.registry.dynamic.size_reservations import Reserved, locked
with locked(sys.argv[1], "bob") as bob:
    fork = bob.reserve(Reserved(100, 0, "people/bob/f"))
child = subprocess.Popen(
    ["sleep", "60"], pass_fds=[fork.descriptor], stdout=subprocess.DEVNULL
)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_reservation_ends_with_the_last_process_that_has_it(folder: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    holder.kill()
    holder.communicate()
    descriptor = os.pidfd_open(child)
    try:
        with locked(folder, "bob") as bob:
            assert bob.reserved() == 100
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        # A descriptor of a process can be read when the process has ended.
        assert select.select([descriptor], [], [], 30)[0]
    finally:
        os.close(descriptor)
    with locked(folder, "bob") as bob:
        assert bob.reserved() == 0
    assert names(folder) == []


def test_an_owner_is_compared_by_one_process_at_a_time(folder: str) -> None:
    with (
        locked(folder, "bob"),
        pytest.raises(TemporaryError, match="try again in a minute"),
        locked(folder, "bob", wait=0),
    ):
        pass
    with locked(folder, "bob"), locked(folder, "carol", wait=0):
        pass


def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(f"{tmp_path}/none/reservations", "bob"):
        pass

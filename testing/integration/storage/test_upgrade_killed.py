"""Upgrades that are killed while they add pushes, and the runs after them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from hgfleet.storage import work_folder

if TYPE_CHECKING:
    from testing.integration.storage.site import StorageSite

PUSH_BEFORE_THE_SWAP = """
real_swap = rebuild._Rebuild._swap
def swap(self):
    push()
    {armed}
    real_swap(self)
rebuild._Rebuild._swap = swap
"""

KILL_IN_THE_CATCH_UP = PUSH_BEFORE_THE_SWAP.format(armed="revlogs._append = killed") + (
    """
real_append = revlogs._append
def killed(*arguments):
    real_append(*arguments)
    kill()
"""
)

KILL_AT_A_WRITE = PUSH_BEFORE_THE_SWAP.format(armed="left.append({number})") + (
    """
left = []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def audit(event, arguments):
    if not left:
        return
    writes = event in ("os.rename", "os.remove", "os.truncate", "os.symlink", "os.link")
    writes = writes or event == "open" and arguments[2] & WRITING
    if writes:
        left[0] -= 1
        if not left[0]:
            kill()
sys.addaudithook(audit)
"""
)

LOST_WRITE = """
from hgfleet.core import durable
class Disk(durable.Disk):
    def __init__(self, folder):
        super().__init__(folder)
        self.hears = not os.path.exists(os.path.join(os.fspath(folder), {work!r}))
    def sync(self):
        if self.hears:
            raise OSError(5, "a write was lost")
durable.Disk = Disk
"""

STEPS = (2, 7, 16, 22, 29, 37)
"""The writes of the swap at which a run is killed; it makes about 40."""


def working_store(site: StorageSite) -> bool:
    return (site.repository / ".hg" / work_folder.WORK / ".hg/store").is_dir()


def test_a_kill_while_a_push_is_added_leaves_a_store_that_the_next_run_takes_up(
    site: StorageSite,
) -> None:
    code, said = site.worker(KILL_IN_THE_CATCH_UP)
    assert code == -signal.SIGKILL, said
    journal = site.repository / ".hg" / work_folder.WORK / ".hg/store/journal"
    assert journal.exists()
    before = site.all()
    code, said = site.worker("")
    assert code == 0, said
    assert json.loads(said.splitlines()[-1])["resumed"] is True
    assert site.all() == before
    site.assert_modern()


@pytest.mark.parametrize("number", STEPS)
def test_a_kill_at_any_write_of_the_swap_blocks_no_later_run(
    site: StorageSite, number: int
) -> None:
    code, said = site.worker(KILL_AT_A_WRITE.format(number=number))
    assert code in (-signal.SIGKILL, 0), said
    before = site.all()
    site.upgrade()
    assert site.all() == before
    site.upgrade()
    site.assert_modern()


def test_a_working_store_that_cannot_be_recovered_is_made_anew(site: StorageSite) -> None:
    site.worker(KILL_IN_THE_CATCH_UP)
    store = site.repository / ".hg" / work_folder.WORK / ".hg/store"
    (store / "journal").write_bytes(b"no journal\n")
    before = site.all()
    code, said = site.worker("")
    assert code == 0, said
    assert json.loads(said.splitlines()[-1])["resumed"] is False
    assert site.all() == before
    site.assert_modern()


def test_the_lock_of_a_killed_run_does_not_stop_the_next_one(site: StorageSite) -> None:
    code, said = site.worker(KILL_IN_THE_CATCH_UP)
    assert code == -signal.SIGKILL, said
    # Another process got the process id of the killed run, as after a restart of the host.
    folder = site.repository / ".hg" / work_folder.WORK / ".hg"
    for lock in (folder / "store/lock", folder / "wlock"):
        owner = lock.readlink().name.rpartition(":")[0]
        lock.unlink()
        lock.symlink_to(f"{owner}:1")
    code, said = site.worker("from hgfleet.storage import opened; opened.LOCK_WAIT_SECONDS = 1")
    assert code == 0, said
    site.assert_modern()


def test_a_write_that_the_disk_lost_is_heard_and_the_old_store_stays(site: StorageSite) -> None:
    """Linux tells a descriptor that was open before the write; another process may hear first."""
    before = site.all()
    code, said = site.worker(LOST_WRITE.format(work=work_folder.WORK))
    assert code != 0, said
    assert "a write was lost" in said
    assert not (site.repository / ".hg" / work_folder.WORK / work_folder.COMPLETE).exists()
    assert site.all() == before
    site.upgrade()
    site.assert_modern()

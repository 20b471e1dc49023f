"""A push is on the disk before its client hears of it: the order of unlock, sync and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.integration.pushlog.site import OPERATOR

if TYPE_CHECKING:
    from pathlib import Path

    from testing.integration.pushlog.site import PushlogSite

# Writes a line for each event, in the process that serves the push.
OBSERVER = """\
import os
from hgfleet.core import durable
from hgfleet.pushlog import shared

ORDER, FAILS = {order!r}, {fails!r}

def note(line):
    with open(ORDER, "a") as file:
        file.write(line + "\\n")

def state(folder):
    names = os.listdir(folder)
    return "written" if "journal" in names else "locked" if "lock" in names else "unlocked"

def extsetup(ui, sync=durable.Disk.sync, made=durable.Disk.__init__):
    def opened(disk, folder):
        note("open " + state(folder))
        made(disk, folder)
    def observed(disk):
        note("sync " + state(disk.folder))
        if os.path.exists(FAILS):
            raise OSError(5, os.strerror(5))
        sync(disk)
    durable.Disk.__init__, durable.Disk.sync = opened, observed

def hook(ui, repo, **more):
    state = shared.of(repo)
    note("told" if state.recorded else "nothing to tell")
    state.recorded = None

def reposetup(ui, repo):
    repo.ui.setconfig(b"hooks", b"txnclose.observer", hook, b"observer")
"""


@pytest.fixture
def order(site: PushlogSite) -> Path:
    """The file of the events in sessions, in order."""
    file = site.root / "order"
    text = OBSERVER.format(order=str(file), fails=str(site.root / "fails"))
    (site.root / "observer.py").write_text(text)
    lines = f"[extensions]\nobserver = {site.root / 'observer.py'}\n"
    site.hgrc.write_text(site.hgrc.read_text() + lines)
    return file


def happened(order: Path) -> list[str]:
    """Return the events since the last call."""
    events = order.read_text().splitlines() if order.exists() else []
    order.unlink(missing_ok=True)
    return events


SYNCED = ["open locked", "sync unlocked", "told"]
"""The disk is open before the transaction writes: else another process may hear of its losses."""


def test_a_push_is_on_the_disk_before_its_client_hears_of_it(
    site: PushlogSite, order: Path
) -> None:
    site.change()
    site.push()
    assert happened(order) == SYNCED
    site.change(text="two\n")
    site.push()
    assert happened(order) == SYNCED


def test_bookmarks_phases_and_removals_are_on_the_disk_too(site: PushlogSite, order: Path) -> None:
    site.configure("server", publishing=False)
    site.change()
    site.push()
    happened(order)
    site.at_work("bookmark", "-r", ".", "book")
    site.push("-B", "book", code=1)
    assert happened(order) == SYNCED
    site.at_work("phase", "-p", "-r", ".")
    site.push(code=1)
    assert happened(order) == SYNCED
    site.change(text="two\n")
    site.push()
    happened(order)
    site.server("debugstrip", "--config", "extensions.strip=", "tip", "--no-backup")
    events = happened(order)
    # A single sync for all transactions of the removal, and for its record.
    assert [event for event in events if event.startswith(("open", "sync"))] == SYNCED[:2]
    assert events[-1] == "told"
    assert [record.kind for record in site.records()][-1] == "strip"


def test_what_leaves_no_record_is_not_synced(site: PushlogSite, order: Path) -> None:
    site.change()
    site.push()
    happened(order)
    site.push(code=1)
    assert "sync unlocked" not in happened(order)
    site.change(text="two\n")
    (site.root / "no.py").write_text("def hook(ui, repo, **more):\n    return 1\n")
    site.hgrc.write_text(
        site.hgrc.read_text() + f"[hooks]\npretxnclose.no = python:{site.root / 'no.py'}:hook\n"
    )
    site.push(code=255)
    assert "sync unlocked" not in happened(order)


def test_a_disk_that_does_not_confirm_a_push_is_told_to_the_client(
    site: PushlogSite, order: Path
) -> None:
    fails = site.root / "fails"
    fails.touch()
    site.change()
    said = site.push(code=255)
    assert "push 1 to server is in the repository, and the disk has not confirmed it" in said
    assert "Input/output error" in said
    assert happened(order) == SYNCED[:2]
    fails.unlink()
    site.change(text="two\n")
    site.push()
    assert happened(order) == SYNCED
    assert [record.id for record in site.records()] == [1, 2]


def test_a_host_may_go_without(site: PushlogSite, order: Path) -> None:
    site.hgrc.write_text(site.hgrc.read_text().replace("[hgfleet]\n", "[hgfleet]\ndurable = no\n"))
    site.change()
    site.push()
    assert happened(order) == ["told"]


def test_a_mirror_leaves_the_sync_to_the_replication(site: PushlogSite, order: Path) -> None:
    site.change()
    site.push()
    happened(order)
    line = site.log().read_bytes().rstrip(b"\n")
    copy = site.repos / "copy"
    site.hg("clone", "-U", site.path("server"), copy, **OPERATOR)
    site.configure("copy")
    happened(order)
    applies = site.root / "applies.py"
    applies.write_text(
        "from hgfleet.pushlog import shared\n"
        f"def reposetup(ui, repo):\n    shared.of(repo).applied = {line!r}\n"
    )
    words = ("--config", f"extensions.applies={applies}")
    site.hg("-R", copy, "bookmark", "-r", "0", "x", *words, **OPERATOR)
    assert site.log("copy").read_bytes() == site.log().read_bytes()
    assert happened(order) == ["told"]


# Ends transactions in all ways, in the same process, and writes its open files after each.
ENDS = """\
import os
from mercurial import error, registrar

cmdtable = {}
command = registrar.command(cmdtable)
BEFORE = 0

def count(repo):
    store, found = os.path.realpath(repo.svfs.base), 0
    for one in os.listdir("/proc/self/fd"):
        try:
            found += os.path.realpath(b"/proc/self/fd/" + one.encode()) == store
        except OSError:
            pass
    return found - BEFORE

def change(repo, name):
    with repo.transaction(b"test") as tr:
        repo._bookmarks.applychanges(repo, tr, [(name, repo[0].node())])
        with repo.transaction(b"nested"):
            assert count(repo) == 1, "in a nested one"

def abort(repo):
    try:
        with repo.transaction(b"test"):
            assert count(repo) == 1, "before an abort"
            raise error.Abort(b"test")
    except error.Abort:
        pass

def refuse(repo):
    def no(ui, repo, **more):
        return True
    with repo.ui.configoverride({(b"hooks", b"pretxnopen.no"): no}):
        try:
            repo.transaction(b"test")
        except error.Abort:
            pass

def nothing(repo):
    with repo.transaction(b"test"):
        pass

@command(b"ends", [], b"")
def ends(ui, repo):
    global BEFORE
    repo = repo.unfiltered()
    BEFORE = count(repo)
    for number in range(20):
        for act in (lambda r: change(r, b"a%d" % number), abort, refuse, nothing):
            with repo.lock():
                act(repo)
                assert count(repo) == 1, "until the release"
            assert count(repo) == 0, "after the release"
        with repo.wlock():
            for again in range(5):
                with repo.lock():
                    change(repo, b"b%d.%d" % (number, again))
                    abort(repo)
                    nothing(repo)
                assert count(repo) == 1, "under the other lock"
        assert count(repo) == 0, "after the other lock"
    # A lock whose release failed does not call; the next transaction has a disk all the same.
    lock = repo.lock()
    abort(repo)
    lock.postrelease.clear()
    lock.release()
    with repo.lock():
        change(repo, b"last")
    del lock
    assert count(repo) == 0, "after a release that failed"
    ui.write(b"none is open\\n")
"""


def test_the_disk_is_closed_in_each_end_of_a_transaction(site: PushlogSite, order: Path) -> None:
    site.change()
    site.push()
    (site.root / "ends.py").write_text(ENDS)
    happened(order)
    done = site.server("ends", "--traceback", "--config", f"extensions.ends={site.root}/ends.py")
    assert done.endswith("none is open\n")
    events = happened(order)
    # 20 times each: a record of its own, and five under the same lock that are synced at once.
    assert events.count("sync unlocked") == 20 + 20 + 1
    assert events.count("told") == 20 * 6 + 1
    assert {event for event in events if event.startswith("open")} == {"open locked"}
    assert len(site.records()) == 1 + 20 * 6 + 1

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
from mercurial import lock, transaction

ORDER, FAILS = {order!r}, {fails!r}

def note(line):
    with open(ORDER, "a") as file:
        file.write(line + "\\n")

def extsetup(ui, sync=durable.sync, close=transaction.transaction.close):
    def observed(folder):
        names = os.listdir(folder)
        state = "locked" if "lock" in names else "open" if "journal" in names else "unlocked"
        note("sync " + state)
        if os.path.exists(FAILS):
            raise OSError(5, os.strerror(5))
        sync(folder)
    durable.sync = observed

def hook(ui, repo, **more):
    last = getattr(repo.unfiltered(), "_pushlog_last", None)
    note("told" if last else "nothing to tell")
    repo.unfiltered()._pushlog_last = None

def reposetup(ui, repo):
    repo.ui.setconfig(b"hooks", b"txnclose.observer", hook, b"observer")
"""


@pytest.fixture
def order(site: PushlogSite) -> Path:
    """The file of what happened in sessions, in order."""
    file = site.root / "order"
    text = OBSERVER.format(order=str(file), fails=str(site.root / "fails"))
    (site.root / "observer.py").write_text(text)
    lines = f"[extensions]\nobserver = {site.root / 'observer.py'}\n"
    site.hgrc.write_text(site.hgrc.read_text() + lines)
    return file


def happened(order: Path) -> list[str]:
    """Return what happened since the last call."""
    found = order.read_text().splitlines() if order.exists() else []
    order.unlink(missing_ok=True)
    return found


SYNCED = ["sync unlocked", "told"]


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
    assert happened(order)[-2:] == SYNCED
    assert [one.kind for one in site.records()][-1] == "strip"


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
    assert happened(order) == ["sync unlocked"]
    fails.unlink()
    site.change(text="two\n")
    site.push()
    assert happened(order) == SYNCED
    assert [one.id for one in site.records()] == [1, 2]


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
    words = ("--config", f"hgfleet.applied-record={line.decode()}")
    site.hg("-R", copy, "bookmark", "-r", "0", "x", *words, **OPERATOR)
    assert site.log("copy").read_bytes() == site.log().read_bytes()
    assert happened(order) == ["told"]

"""Forks with a real hg: the content of the copy, and who may read it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core import identity
from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog import log_file
from testing.integration.selfservice.site import slow_hg

if TYPE_CHECKING:
    from testing.conftest import WaitFor
    from testing.integration.selfservice.site import SelfserviceSite


def test_a_fork_has_the_changesets_that_a_reader_sees_and_nothing_else(
    site: SelfserviceSite,
) -> None:
    place = site.source("hgfleet")
    site.hg("-R", str(place), "bookmark", "-r", "0", "stable")
    site.add("hgfleet", "secret-file", "--secret")
    site.hg("-R", str(place), "update", "-q", "2")
    site.add("hgfleet", "hidden-file")
    site.hg("-R", str(place), "--config", "phases.publish=False", "phase", "--draft", "-f", "tip")
    hidden = site.hg("-R", str(place), "log", "-r", "tip", "-T", "{node}")
    site.hg("-R", str(place), "update", "-q", "2")
    site.hg("-R", str(place), "debugobsolete", hidden)
    (place / ".hg/store/hgfleet-private").write_text("of an extension")
    said = site.ok("carol", "repo fork hgfleet people/carol/f")
    assert said.startswith("Forked hgfleet as people/carol/f.\n")
    copy = site.repos / "people/carol/f"
    assert (
        site.hg("-R", str(copy), "log", "--hidden", "-T", "{desc} ")
        == "add file2 add file1 add file0 "
    )
    assert site.hg("-R", str(copy), "bookmarks", "-T", "{bookmark}") == "stable"
    store = b"".join(p.read_bytes() for p in (copy / ".hg").rglob("*") if p.is_file())
    for word in (b"secret-file", b"hidden-file", b"of an extension"):
        assert word not in store
    # Nothing is shared on disk: the source may be purged.
    assert not {p.lstat().st_ino for p in place.rglob("*")} & {
        p.lstat().st_ino for p in copy.rglob("*")
    }
    assert str(place) not in (copy / ".hg/hgrc").read_text()
    assert site.entries["people/carol/f"].forked_from == "hgfleet"
    # Its first push adopts the changesets of the source.
    assert not (copy / ".hg" / log_file.FROM_START).exists()


def test_a_fork_of_a_private_repository_is_as_private(site: SelfserviceSite) -> None:
    site.source("staff/plans")
    site.ok("bob", "repo fork staff/plans people/bob/p")
    assert site.entries["people/bob/p"].read == ("staff", "sandbox")
    hgrc = (site.repos / "people/bob/p/.hg/hgrc").read_text()
    assert "read = staff sandbox\n" in hgrc
    refused = site.ssh_command("bob", "repo fork staff/plans people/bob/q --read public")
    assert "cannot be public" in refused.stderr
    assert not (site.repos / "people/bob/q").exists()
    site.ok("bob", "repo fork staff/plans people/bob/r --read private")
    # A fork of the fork is as private. Carol, who is in one of the groups, may not fork the second.
    site.ok("carol", "repo fork people/bob/p people/carol/p")
    assert site.entries["people/carol/p"].read == ("staff", "sandbox")
    assert site.ssh_command("carol", "repo fork people/bob/r people/carol/r").stderr.startswith(
        "There is no repository 'people/bob/r' here for carol."
    )


def test_another_repository_that_comes_to_the_path_is_not_copied(site: SelfserviceSite) -> None:
    site.ok("bob", "repo create people/bob/a")
    place = site.repos / "people/bob/a"
    assert identity.of(place) == site.entries["people/bob/a"].identity
    # As after a rename and a creation, between the look at the registry and the start of hg.
    (place / identity.FILE).write_text(identity.text("5" * identity.LENGTH))
    refused = site.ssh_command("bob", "repo fork people/bob/a people/bob/b")
    assert refused.returncode == 75
    assert refused.stderr.startswith(
        "people/bob/a was renamed or replaced during the copy; nothing"
    )
    assert not (site.repos / "people/bob/b").exists()
    assert "people/bob/b" not in site.entries


def test_a_source_may_be_pushed_to_meanwhile(site: SelfserviceSite) -> None:
    place = site.source("hgfleet")
    stop = threading.Event()

    def push() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            site.add("hgfleet", f"more{number}")

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        site.ok("bob", "repo fork hgfleet people/bob/f")
    finally:
        stop.set()
        pusher.join()
    copy = str(site.repos / "people/bob/f")
    assert site.hg("-R", copy, "verify", "-q") == ""
    assert int(site.hg("-R", copy, "log", "-r", "tip", "-T", "{rev}")) >= 2
    # The same history, as far as it goes.
    tip = site.hg("-R", copy, "log", "-r", "tip", "-T", "{node}")
    assert site.hg("-R", str(place), "log", "-r", tip, "-T", "{node}") == tip


def test_a_fork_holds_a_session_slot_of_the_person_for_its_length(
    site: SelfserviceSite, wait_for: WaitFor
) -> None:
    site.source("hgfleet")
    folder = site.root / "sessions"
    folder.mkdir(mode=0o700)
    settings = f"[hgfleet]\nsessions = {folder}\nsessions-person = 1\n"
    site.hgrc.write_text(site.hgrc.read_text() + settings)
    fork = site.session("bob", "repo fork hgfleet people/bob/f", first=slow_hg(site))
    assert fork.stderr is not None
    assert fork.stderr.readline().startswith("copying: about ")
    for command in ("repo fork hgfleet people/bob/g", "whoami"):
        refused = site.ssh_command("bob", command)
        assert refused.returncode == TemporaryError.exit_code
        assert refused.stderr.startswith("bob has too many sessions on this server: 1 at a time")
    site.ok("carol", "whoami")
    # The copy goes on for a moment when its session is killed, and has the slot as long as it does.
    pid = int((site.repos / "people/bob/.f.making/.hg/store/pid").read_text())
    fork.kill()
    fork.wait()
    assert site.ssh_command("bob", "whoami").returncode == TemporaryError.exit_code
    os.kill(pid, signal.SIGKILL)
    wait_for("the slot", lambda: site.ssh_command("bob", "whoami").returncode == 0)


def test_a_fork_reports_its_progress_and_ends_with_its_session(
    site: SelfserviceSite, wait_for: WaitFor
) -> None:
    site.source("hgfleet")
    session = site.session("bob", "repo fork hgfleet people/bob/f", first=slow_hg(site))
    assert session.stderr is not None
    assert session.stderr.readline().startswith("copying: about ")
    pid = int((site.repos / "people/bob/.f.making/.hg/store/pid").read_text())
    session.stderr.close()
    assert session.wait() == TemporaryError.exit_code
    wait_for("the end of hg", lambda: not Path(f"/proc/{pid}").exists())
    assert site.remains() == []
    assert site.entries == {}
    assert "client disconnected" in (site.root / "log").read_text()

"""A process killed in a transaction leaves no record or a whole one, and no repair to do."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testing.integration.pushlog.site import OPERATOR
from testing.integration.support.site import HGEXT

if TYPE_CHECKING:
    from testing.integration.pushlog.site import PushlogSite


@pytest.mark.parametrize("kind", ["changesets", "phases"])
def test_a_push_killed_at_any_file_operation_is_whole_or_gone(site: PushlogSite, kind: str) -> None:
    site.hgrc.write_text(f"{site.hgrc.read_text()}recovery = {HGEXT}/recovery.py\n")
    site.configure("server", publishing=False)
    site.change()
    site.push()
    site.change("other", "two\n")
    site.at_work("bundle", "--all", site.root / "all.hg")
    kills(site, kind)


def test_a_removal_killed_at_any_file_operation_is_whole_or_gone(site: PushlogSite) -> None:
    # The changeset 1 goes, and core takes 2 away for a moment.
    site.hgrc.write_text(f"{site.hgrc.read_text()}recovery = {HGEXT}/recovery.py\n")
    site.configure("server", publishing=False)
    site.change()
    site.change("secret", "a password\n")
    site.at_work("bookmark", "-r", "1", "secret")
    site.at_work("update", "-q", "0", "--cwd", site.work)
    site.change("other", "two\n")
    site.at_work("bookmark", "-r", "2", "other")
    site.push("--force", "-B", "secret", "-B", "other")
    kills(site, "strip")


def kills(site: PushlogSite, kind: str) -> None:
    """Kill a change of the server at any of its steps (`killed.py`)."""
    folder = site.root / "rounds"
    folder.mkdir()
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, script, folder, site.path("server"), site.root / "all.hg", kind],
        env=site.environment(**OPERATOR),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    said = re.search(r"(\d+) kills, (\d+) after", done.stdout)
    assert said, done.stdout

    assert int(said[1]) > 15
    assert int(said[2]) > 0


def test_a_push_succeeds_after_the_session_before_it_was_killed(site: PushlogSite) -> None:
    site.change()
    site.push()
    # The session dies with its record half written, before the client has an answer.
    die = site.root / "die.py"
    die.write_text(
        "import os, signal\n"
        "from hgfleet.pushlog import writing\n"
        "def append(store, transaction, tip, lines, plain=writing.append):\n"
        "    plain(store, transaction, tip, [lines[0][:40]])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "writing.append = append\n"
    )
    second = site.change(text="two\n")
    plain = f"{site.hgrc.read_text()}recovery = {HGEXT}/recovery.py\n"
    site.hgrc.write_text(f"{plain}die = {die}\n")
    site.push(code=255)
    assert (site.path("server") / ".hg/store/journal").exists()
    site.hgrc.write_text(plain)
    # The changesets of the killed push are not taken for pushed.
    said = site.push()
    assert "added 1 changesets" in said
    assert [record.changesets for record in site.records()][1:] == [(second,)]
    assert site.server("verify", "-q") == ""


def test_a_transaction_under_way_is_left_alone(site: PushlogSite) -> None:
    site.hgrc.write_text(f"{site.hgrc.read_text()}recovery = {HGEXT}/recovery.py\n")
    site.change()
    site.push()
    script = (
        "import sys\n"
        "from mercurial import extensions, ui as u\n"
        "from mercurial.repo import factory\n"
        "ui = u.ui.load(); extensions.loadall(ui)\n"
        f"repo = factory.repository(ui, {os.fsencode(site.path('server'))!r})\n"
        "with repo.wlock(), repo.lock(), repo.transaction(b'push') as transaction:\n"
        "    node = repo[b'tip'].node()\n"
        "    repo._bookmarks.applychanges(repo, transaction, [(b'stable', node)])\n"
        "    print('open', flush=True); sys.stdin.readline()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script],
        env=site.environment(**OPERATOR),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin
    assert writer.stdout
    with writer:
        assert writer.stdout.readline() == "open\n"
        journal = site.path("server") / ".hg/store/journal"
        assert journal.exists()
        assert site.server("log", "-T", "{rev}") == "0"
        assert journal.exists()
        writer.stdin.write("\n")
        writer.stdin.close()
    assert writer.returncode == 0
    assert [record.bookmarks[0][0] for record in site.records()[1:]] == ["stable"]


@pytest.mark.parametrize("lock", [".hg/store/lock", ".hg/wlock"])
def test_a_lock_from_before_the_host_started_is_broken(site: PushlogSite, lock: str) -> None:
    site.hgrc.write_text(
        f"{site.hgrc.read_text()}recovery = {HGEXT}/recovery.py\n[ui]\ntimeout = 1\n"
    )
    site.change()
    place = site.path("server") / lock
    # Of a process that may live in another namespace of this host; then from before its start.
    place.symlink_to(f"{socket.gethostname()}/dead:1")
    words = ("-R", site.path("server"), "debugobsolete", "0" * 40)
    if lock.endswith("store/lock"):
        site.push(code=255)
    os.utime(place, (1, 1), follow_symlinks=False)
    site.hg(*words, "--config", "experimental.evolution=all", **OPERATOR)
    site.push()
    assert not place.is_symlink()
    assert site.records()[-1].user == "alice"

"""Creation with a real hg: the repository on disk, also after a kill in between."""

from __future__ import annotations

import fcntl
import os
import signal

import pytest

from hgfleet.pushlog import log_file
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.registry import Settings
from hgfleet.selfservice import creation
from testing.integration.selfservice.site import BOB, CAROL, SelfserviceSite
from testing.integration.selfservice.test_archive import apply


def test_a_created_repository_is_registered_configured_and_can_be_pushed_to(
    site: SelfserviceSite,
) -> None:
    said = site.ok("bob", "repo create people/bob/x --description 'Two words'")
    assert said.startswith("Created people/bob/x.\n\n  hg clone ssh://hg@HOST/people/bob/x\n")
    entry = site.entries["people/bob/x"]
    assert (entry.owner, entry.description, entry.read, entry.push) == (
        "bob",
        "Two words",
        None,
        None,
    )
    hgrc = (site.repos / "people/bob/x/.hg/hgrc").read_text()
    assert "path = people/bob/x\n" in hgrc
    assert "owner = bob\n" in hgrc
    # Its push log covers it from the beginning, so no push adopts changesets.
    assert (site.repos / "people/bob/x/.hg" / log_file.FROM_START).exists()
    assert "description = Two words\n" in hgrc
    site.source("made")
    place = site.path("people/bob/x")
    site.hg("-R", place, "pull", "-q", str(site.repos / "made"), **BOB)
    assert site.hg("-R", place, "log", "-T", "x") == "xxx"
    with pytest.raises(AssertionError, match="carol may not push to people/bob/x"):
        site.hg("-R", place, "bookmark", "-r", "0", "x", **CAROL)
    # The fields of the log line can be searched for.
    log = (site.root / "log").read_text()
    assert 'decision=answer reason="repo create" user=bob arguments=people/bob/x' in log
    assert not (site.repos / "people/bob/x/.hg" / creation.MARK).exists()
    assert (site.repos / "people/bob/x").stat().st_mode & 0o777 == 0o750


def test_answers_and_refusals_name_the_configured_address(site: SelfserviceSite) -> None:
    site.hgrc.write_text(f"{site.hgrc.read_text()}[hgfleet]\nssh-url = ssh://hg@a.example:22022\n")
    site.ok("bob", "repo create people/bob/x")
    again = site.ssh_command("bob", "repo create people/bob/x").stderr
    assert again.startswith("You have people/bob/x already: ssh://hg@a.example:22022/people/bob/x.")
    for said in (
        site.ok("bob", "help"),
        site.ok("bob", "repo info people/bob/x"),
        site.ssh_command("bob", "hg init x").stderr,
        site.ssh_command("bob", "repo nothing").stderr,
        site.ssh_command("bob", "hg -R no/such/path serve --stdio").stderr,
    ):
        assert "hg@HOST" not in said
        assert "a.example" in said


def test_a_refused_creation_leaves_nothing(site: SelfserviceSite) -> None:
    for path in ("new", "people/carol/x", "people/bob", "people/bob/../x", "/etc/x", "hgfleet/x"):
        refused = site.ssh_command("bob", f"repo create {path}")
        assert refused.returncode not in (0, 255)
        assert refused.stderr.count("\n") == 1
    assert list(site.repos.iterdir()) == []
    assert site.entries == {}


def test_a_repository_that_the_inventory_once_had_is_not_given_away(site: SelfserviceSite) -> None:
    """It is on disk and not served; a new repository of the name must not open its history."""
    place = site.source("open/retired")
    for path in ("open/retired", "open/retired/inside"):
        refused = site.ssh_command("bob", f"repo create {path}")
        assert refused.stderr == f"The name {path} is not available: choose another name.\n"
    refused = site.ssh_command("bob", "repo fork staff/plans open/retired")
    assert refused.returncode != 0
    assert site.hg("-R", str(place), "log", "-T", "x") == "xxx"
    assert site.entries == {}


def test_of_two_sessions_that_create_the_same_path_one_is_refused(site: SelfserviceSite) -> None:
    both = [site.session(person, "repo create open/x") for person in ("bob", "carol")]
    said = [process.communicate() for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes[0] == 0, said
    assert codes[1] != 0, said
    winner = "bob" if both[0].returncode == 0 else "carol"
    assert site.entries["open/x"].owner == winner
    assert f"owner = {winner}\n" in (site.repos / "open/x/.hg/hgrc").read_text()
    assert site.remains() == []


def test_sessions_at_the_same_time_do_not_exceed_the_quota(site: SelfserviceSite) -> None:
    many = [site.session("bob", f"repo create open/r{number}") for number in range(5)]
    for process in many:
        process.communicate()
    assert sorted(process.returncode for process in many) == [0, 0, 0, 77, 77]
    assert len(site.entries) == 3
    assert site.remains() == []
    assert len(list((site.repos / "open").iterdir())) == 3


def test_the_inventory_may_declare_the_path_meanwhile(site: SelfserviceSite) -> None:
    site.source("hgfleet")
    # `registry apply` at work: it holds the lock, and has written the compiled registry at its end.
    with dynamic_update.locked(site.dynamic):
        waiting = site.session("bob", "repo create open/x")
        made = site.repos / "open/.x.making/.hg" / creation.MARK
        while not made.exists():
            assert waiting.poll() is None
        site.declare(open__x=("Declared", Settings()))
    _, refused = waiting.communicate()
    assert refused == "The name open/x is not available: choose another name.\n"
    assert site.entries == {}
    assert site.remains() == []


KILLED_AT = {
    "while hg makes it": "creation._hg = creation._copy = lambda *a: kill()",
    "before it is moved": "repositories.configure_at = lambda *a: kill()",
    "after it was moved": "creation.sync = lambda *a: kill()",
    "while it is registered": "files.replace_at = lambda *a, **k: kill()",
    "after it was registered": "Path.unlink = lambda *a, **k: kill()",
}


@pytest.mark.parametrize("patch", KILLED_AT.values(), ids=KILLED_AT)
@pytest.mark.parametrize("command", ["create open/x", "fork hgfleet open/x"])
def test_after_a_killed_creation_the_next_one_succeeds(
    site: SelfserviceSite, patch: str, command: str
) -> None:
    site.source("hgfleet")
    kill = (
        "import os, signal; from pathlib import Path; "
        "from hgfleet.core import files; "
        "from hgfleet.selfservice import creation, repositories; "
        f"kill = lambda: os.kill(os.getpid(), signal.SIGKILL); {patch}; "
    )
    killed = site.ssh_command("bob", f"repo {command}", first=kill)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if "open/x" in site.entries:
        # Complete, but for the answer.
        assert "after it was registered" in KILLED_AT
        assert site.hg("-R", str(site.repos / "open/x"), "verify", "-q") == ""
        return
    site.ok("carol", f"repo {command}")
    assert site.entries["open/x"].owner == "carol"
    assert "owner = carol\n" in (site.repos / "open/x/.hg/hgrc").read_text()
    assert site.hg("-R", str(site.repos / "open/x"), "verify", "-q") == ""
    assert site.remains() == []


KILL_AT_A_WRITE = """\
import os, signal, sys
left = [{number}]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def audit(event, arguments):
    path = str(arguments[0]) if arguments else ""
    writes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink")
    writes = writes or event == "open" and arguments[2] & WRITING and not path.endswith("/log")
    if writes and "__pycache__" not in path:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(audit)
"""


@pytest.mark.parametrize("number", [1, 8, *range(16, 23)])
def test_no_kill_lets_a_later_creation_delete_a_history(site: SelfserviceSite, number: int) -> None:
    killed = site.ssh_command("bob", "repo create open/x", KILL_AT_A_WRITE.format(number=number))
    assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
    if "open/x" not in site.entries:
        site.ok("carol", "repo create open/x")
        assert site.remains() == []
        return
    site.add("open/x", "file")
    # The dynamic registry is from a backup of before.
    site.dynamic.write_text('{"format": 1, "repositories": {}}')
    refused = site.ssh_command("carol", "repo create open/x")
    assert refused.stderr == "The name open/x is not available: choose another name.\n"
    assert site.hg("-R", str(site.repos / "open/x"), "log", "-T", "x") == "x"


def test_the_mark_of_a_registered_repository_is_removed_by_registry_apply(
    site: SelfserviceSite,
) -> None:
    kill = (
        "import os, signal; from pathlib import Path; "
        "Path.unlink = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL); "
    )
    site.ssh_command("bob", "repo create open/x", kill)
    mark = site.repos / "open/x/.hg" / creation.MARK
    assert mark.exists()
    assert "open/x" in site.entries
    assert f"open/x: .hg/{creation.MARK} removed" in apply(site, site.declare())
    assert not mark.exists()


def test_a_lost_dynamic_registry_is_not_begun_anew(site: SelfserviceSite) -> None:
    site.ok("bob", "repo create open/x")
    site.dynamic.unlink()
    refused = site.ssh_command("bob", "repo create open/y")
    assert refused.returncode != 0
    assert not site.dynamic.exists()
    site.dynamic.write_text('{"format": 1, "repositories": {}}')
    site.ok("bob", "repo create open/y")


def test_an_hg_that_outlives_its_session_keeps_the_next_one_away(site: SelfserviceSite) -> None:
    """Its hg may still be at work in the folder."""
    new = site.repos / "open/.x.making"
    new.mkdir(parents=True)
    descriptor = os.open(new, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    refused = site.ssh_command("bob", "repo create open/x")
    assert (refused.returncode, refused.stderr) == (
        75,
        "Another session creates open/x at this moment: try again in a minute.\n",
    )
    os.close(descriptor)
    site.ok("bob", "repo create open/x")


def test_the_mirrors_are_told_of_beside_the_answer(site: SelfserviceSite) -> None:
    relay = site.root / "no.sock"
    site.hgrc.write_text(f"{site.hgrc.read_text()}[hgfleet]\nrelay = {relay}\n")
    done = site.ssh_command("bob", "repo create people/bob/x")
    assert done.returncode == 0
    assert done.stdout.startswith("Created people/bob/x.")
    assert "mirrors" not in done.stdout
    assert done.stderr == "repo create: replication is down, mirrors will show it later\n"
    # A refusal changes nothing that mirrors could show.
    assert "mirrors" not in site.ssh_command("bob", "repo create people/bob/x").stderr
    assert site.ssh_command("bob", "repo list").stderr == ""


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_new_repository_is_on_the_disk_before_the_registry_names_it(
    site: SelfserviceSite, *, is_durable: bool
) -> None:
    order = site.root / "order"
    if not is_durable:
        site.hgrc.write_text(site.hgrc.read_text() + "[hgfleet]\ndurable = no\n")
    line = (
        f"event + ' ' + str(os.path.exists({str(site.root / 'repos/open/.x.making')!r})) + "
        f"' ' + str(os.path.exists({str(site.dynamic)!r})) + '\\n'"
    )
    first = (
        "import os; from hgfleet.core.durable import Disk; sync, made = Disk.sync, Disk.__init__; "
        f"note = lambda event: open({str(order)!r}, 'a').write({line}); "
        "Disk.sync = lambda disk: (note('sync'), sync(disk)); "
        "Disk.__init__ = lambda disk, folder: (note('open'), made(disk, folder))[1]; "
    )
    with site.session("bob", "repo create open/x", first) as session:
        out, err = session.communicate(timeout=60)
    assert session.returncode == 0, out + err
    assert "open/x" in site.entries
    if is_durable:
        assert order.read_text() == "open False False\nsync True False\n"
    else:
        assert "sync" not in order.read_text()

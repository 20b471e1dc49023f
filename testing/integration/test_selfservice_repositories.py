"""Creating and forking with a real hg: what is on disk afterwards, and after a kill in between."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.core.paths import MANIFESTS
from hgfleet.registry import dynamic_update, provision, user_repositories
from hgfleet.registry.compiled import dump_compiled
from hgfleet.registry.model import Namespace, Registry, Settings, build
from hgfleet.registry.owned_files import Owner
from hgfleet.selfservice import creation

if TYPE_CHECKING:
    from testing.conftest import WaitFor

TOP = Path(__file__).resolve().parents[2]
HG = Path(sys.executable).with_name("hg")

NAMESPACES = {
    "people": Namespace(
        "people",
        "",
        Settings(push=(), bundles=()),
        create=("sandbox", "maintainers"),
        personal=True,
        quota=3,
    ),
    "open": Namespace("open", "", create=("sandbox", "maintainers"), quota=3),
}

HGRC = f"""\
[ui]
username = test
[extensions]
access = {TOP}/hgext/access.py
policies = {TOP}/hgext/policies.py
[experimental]
evolution = all
"""


class Site:
    """A host: the registry, repositories, and sessions as sshd starts them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.repos = path / "repos"
        self.repos.mkdir()
        (path / "dynamic").mkdir()
        self.file = path / "dynamic/registry.json"
        (path / "hgrc").write_text(HGRC)
        self.declare()

    def declare(self, **more: tuple[str, Settings]) -> Registry:
        """Have these repositories in the inventory, beside two that are always there."""
        declared = {
            "hgfleet": ("The service", Settings()),
            "staff/plans": ("Plans", Settings(read=("staff", "sandbox"))),
            **{path.replace("__", "/"): entry for path, entry in more.items()},
        }
        static = build(declared, NAMESPACES, Settings(push=("maintainers",)))
        (self.path / "registry.json").write_text(dump_compiled(static))
        return static

    def words(self, person: str, group: str = "sandbox") -> list[str]:
        # The system log of the machine that runs the tests is not ours to fill.
        start = (
            "import sys; from hgfleet.ssh import shell; "
            f"log = open('{self.path}/log', 'a', buffering=1); "
            "shell.logfmt.to_syslog = lambda _: lambda t: print(t, file=log); "
            "sys.exit(shell.main())"
        )
        return [
            *(sys.executable, "-c", start, "--user", person, "--groups", group),
            *("--registry", f"{self.path}/registry.json", "--dynamic", str(self.file)),
            *("--root", str(self.repos), "--hgrc", f"{self.path}/hgrc"),
        ]

    def environment(self, command: str) -> dict[str, str]:
        return {"PYTHONPATH": str(TOP), "SSH_ORIGINAL_COMMAND": command, "PATH": "/usr/bin:/bin"}

    def ssh(self, person: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(person),
            env=self.environment(command),
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, person: str, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(person),
            env=self.environment(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ok(self, person: str, command: str) -> str:
        done = self.ssh(person, command)
        assert done.returncode == 0, (done.stderr, (self.path / "log").read_text())
        return done.stdout

    def hg(self, *arguments: str, person: str = "operator:test") -> str:
        """Run hg as a session's hg would be run."""
        groups = {"bob": "sandbox", "carol": "sandbox"}.get(person, "")
        done = subprocess.run(
            [str(HG), *arguments],
            env={
                "HGRCPATH": f"{self.path}/hgrc",
                "HGPLAIN": "1",
                "HGFLEET_USER": person,
                "HGFLEET_GROUPS": groups,
                "PYTHONPATH": str(TOP),
                "PATH": os.environ["PATH"],
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def source(self, path: str, commits: int = 3) -> Path:
        place = self.repos / path
        self.hg("init", str(place))
        for number in range(commits):
            self.commit(path, f"file{number}")
        return place

    def commit(self, path: str, name: str, *more: str) -> None:
        (self.repos / path / name).write_text(name)
        self.hg("-R", str(self.repos / path), "commit", "-qAm", name, *more)

    @property
    def entries(self) -> dict[str, user_repositories.Entry]:
        return dict(user_repositories.load(self.file).repositories)

    def remains(self) -> list[str]:
        """What lies about below the root and is no repository or folder of them."""
        return [str(p.relative_to(self.repos)) for p in self.repos.rglob(".*") if p.name != ".hg"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# --- create ---------------------------------------------------------------------------------


def test_a_created_repository_is_registered_configured_and_can_be_pushed_to(site: Site) -> None:
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
    assert "description = Two words\n" in hgrc
    site.source("made")
    place = str(site.repos / "people/bob/x")
    site.hg("-R", place, "pull", "-q", str(site.repos / "made"), person="bob")
    assert site.hg("-R", place, "log", "-T", "x") == "xxx"
    with pytest.raises(AssertionError, match="carol may not push to people/bob/x"):
        site.hg("-R", place, "bookmark", "-r", "0", "x", person="carol")
    # What the log says of it can be searched for.
    log = (site.path / "log").read_text()
    assert 'decision=answer reason="repo create" user=bob arguments=people/bob/x' in log
    assert not (site.repos / "people/bob/x/.hg" / creation.MARK).exists()
    assert (site.repos / "people/bob/x").stat().st_mode & 0o777 == 0o750


def test_what_may_not_be_created_leaves_nothing(site: Site) -> None:
    for path in ("new", "people/carol/x", "people/bob", "people/bob/../x", "/etc/x", "hgfleet/x"):
        refused = site.ssh("bob", f"repo create {path}")
        assert refused.returncode not in (0, 255)
        assert refused.stderr.count("\n") == 1
    assert list(site.repos.iterdir()) == []
    assert site.entries == {}


def test_a_repository_that_the_inventory_once_had_is_not_given_away(site: Site) -> None:
    """It is on disk, and nobody serves it; its name alone must not open its history."""
    place = site.source("open/retired")
    for path in ("open/retired", "open/retired/inside"):
        refused = site.ssh("bob", f"repo create {path}")
        assert refused.stderr == f"The name {path} is not available: choose another one.\n"
    refused = site.ssh("bob", "repo fork staff/plans open/retired")
    assert refused.returncode != 0
    assert site.hg("-R", str(place), "log", "-T", "x") == "xxx"
    assert site.entries == {}


def test_two_who_want_the_same_path_do_not_get_one_each(site: Site) -> None:
    both = [site.start(person, "repo create open/x") for person in ("bob", "carol")]
    said = [process.communicate() for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes[0] == 0, said
    assert codes[1] != 0, said
    winner = "bob" if both[0].returncode == 0 else "carol"
    assert site.entries["open/x"].owner == winner
    assert f"owner = {winner}\n" in (site.repos / "open/x/.hg/hgrc").read_text()
    assert site.remains() == []


def test_several_at_once_do_not_get_past_the_quota(site: Site) -> None:
    many = [site.start("bob", f"repo create open/r{number}") for number in range(5)]
    for process in many:
        process.communicate()
    assert sorted(process.returncode for process in many) == [0, 0, 0, 77, 77]
    assert len(site.entries) == 3
    assert site.remains() == []
    assert len(list((site.repos / "open").iterdir())) == 3


def test_the_inventory_may_declare_the_path_meanwhile(site: Site) -> None:
    site.source("hgfleet")
    # `registry apply` at work: it holds the lock, and has written the compiled registry at its end.
    with dynamic_update.locked(site.file):
        waiting = site.start("bob", "repo create open/x")
        made = site.repos / "open/.x.making/.hg" / creation.MARK
        while not made.exists():
            assert waiting.poll() is None
        site.declare(open__x=("Declared", Settings()))
    _, refused = waiting.communicate()
    assert refused == "The name open/x is not available: choose another one.\n"
    assert site.entries == {}
    assert site.remains() == []


# --- killed ---------------------------------------------------------------------------------

KILLED_AT = {
    "while hg makes it": "creation._hg = creation._copy = lambda *a: kill()",
    "before it is moved": "repositories.configure_at = lambda *a: kill()",
    "after it was moved": "creation.sync = lambda *a: kill()",
    "while it is registered": "files.replace_at = lambda *a, **k: kill()",
    "after it was registered": "Path.unlink = lambda *a, **k: kill()",
}


@pytest.mark.parametrize("patch", KILLED_AT.values(), ids=KILLED_AT)
@pytest.mark.parametrize("command", ["create open/x", "fork hgfleet open/x"])
def test_whenever_it_is_killed_the_next_one_succeeds(site: Site, patch: str, command: str) -> None:
    site.source("hgfleet")
    kill = (
        "import os, signal; from pathlib import Path; "
        "from hgfleet.core import files; "
        "from hgfleet.selfservice import creation, repositories; "
        f"kill = lambda: os.kill(os.getpid(), signal.SIGKILL); {patch}; "
    )
    words = site.words("bob")
    words[2] = kill + words[2]
    killed = subprocess.run(
        words, env=site.environment(f"repo {command}"), capture_output=True, text=True, check=False
    )
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


def test_what_survives_a_killed_session_keeps_the_next_one_away(site: Site) -> None:
    """Its hg may still be at work in the folder."""
    new = site.repos / "open/.x.making"
    new.mkdir(parents=True)
    descriptor = os.open(new, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    refused = site.ssh("bob", "repo create open/x")
    assert (refused.returncode, refused.stderr) == (
        75,
        "Another session creates open/x at this moment: try again in a minute.\n",
    )
    os.close(descriptor)
    site.ok("bob", "repo create open/x")


# --- fork -----------------------------------------------------------------------------------


def test_a_fork_has_what_a_reader_sees_and_nothing_else(site: Site) -> None:
    place = site.source("hgfleet")
    site.hg("-R", str(place), "bookmark", "-r", "0", "stable")
    site.commit("hgfleet", "secret-file", "--secret")
    site.hg("-R", str(place), "update", "-q", "2")
    site.commit("hgfleet", "hidden-file")
    site.hg("-R", str(place), "--config", "phases.publish=False", "phase", "--draft", "-f", "tip")
    hidden = site.hg("-R", str(place), "log", "-r", "tip", "-T", "{node}")
    site.hg("-R", str(place), "update", "-q", "2")
    site.hg("-R", str(place), "debugobsolete", hidden)
    (place / ".hg/store/hgfleet-private").write_text("of an extension")
    said = site.ok("carol", "repo fork hgfleet people/carol/f")
    assert said.startswith("Forked hgfleet as people/carol/f.\n")
    copy = site.repos / "people/carol/f"
    assert site.hg("-R", str(copy), "log", "--hidden", "-T", "{desc} ") == "file2 file1 file0 "
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


def test_a_fork_of_a_private_repository_is_as_private(site: Site) -> None:
    site.source("staff/plans")
    site.ok("bob", "repo fork staff/plans people/bob/p")
    assert site.entries["people/bob/p"].read == ("staff", "sandbox")
    hgrc = (site.repos / "people/bob/p/.hg/hgrc").read_text()
    assert "read = staff sandbox\n" in hgrc
    refused = site.ssh("bob", "repo fork staff/plans people/bob/q --read public")
    assert "cannot be public" in refused.stderr
    assert not (site.repos / "people/bob/q").exists()
    site.ok("bob", "repo fork staff/plans people/bob/r --read private")
    # And so is a fork of the fork: for carol, who is in one of the groups, but not of the second.
    site.ok("carol", "repo fork people/bob/p people/carol/p")
    assert site.entries["people/carol/p"].read == ("staff", "sandbox")
    assert site.ssh("carol", "repo fork people/bob/r people/carol/r").stderr.startswith(
        "There is no repository 'people/bob/r' here for carol."
    )


def test_a_source_may_be_pushed_to_meanwhile(site: Site) -> None:
    place = site.source("hgfleet")
    stop = threading.Event()

    def push() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            site.commit("hgfleet", f"more{number}")

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


SLOW_HG = """\
#!/bin/sh
# `hg clone ... -- SOURCE NEW` that takes as long as the test wants.
for new; do :; done
mkdir -p "$new/.hg/store" && echo $$ > "$new/.hg/store/pid" && exec cat {fifo}
"""


def test_whoever_waits_is_told_and_whoever_leaves_stops_it(site: Site, wait_for: WaitFor) -> None:
    site.source("hgfleet")
    fifo, slow = site.path / "fifo", site.path / "slow-hg"
    os.mkfifo(fifo)
    slow.write_text(SLOW_HG.format(fifo=shlex.quote(str(fifo))))
    slow.chmod(0o755)
    words = site.words("bob")
    words[2] = (
        "from hgfleet.selfservice import creation, repositories; creation.PROGRESS_S = 0.05; "
        f"repositories.program = lambda: '{slow}'; {words[2]}"
    )
    session = subprocess.Popen(
        words,
        env=site.environment("repo fork hgfleet people/bob/f"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert session.stderr is not None
    assert session.stderr.readline().startswith("copying: about ")
    pid = int((site.repos / "people/bob/.f.making/.hg/store/pid").read_text())
    session.stderr.close()
    assert session.wait() == TemporaryError.exit_code
    wait_for("the end of hg", lambda: not Path(f"/proc/{pid}").exists())
    assert site.remains() == []
    assert site.entries == {}
    assert "client disconnected" in (site.path / "log").read_text()


# --- archive and restore --------------------------------------------------------------------


def test_restoring_brings_back_everything(site: Site) -> None:
    site.source("hgfleet")
    site.ok("bob", "repo fork hgfleet people/bob/f")
    site.ok("bob", "repo describe people/bob/f My own one")
    assert "description = My own one\n" in (site.repos / "people/bob/f/.hg/hgrc").read_text()
    before = site.entries
    site.ok("bob", "repo archive people/bob/f")
    gone = site.ssh("bob", "hg -R people/bob/f serve --stdio")
    missing = site.ssh("bob", "hg -R people/bob/g serve --stdio")
    assert gone.stderr.replace("people/bob/f", "people/bob/g") == missing.stderr
    assert "restore" in site.ssh("bob", "repo create people/bob/f").stderr
    site.ok("bob", "repo restore people/bob/f")
    assert site.entries == before
    assert "changesets:   3\n" in site.ok("bob", "repo info people/bob/f")
    assert site.ssh("bob", "repo restore people/bob/f").stderr == "people/bob/f is not archived.\n"


def test_bundle_jobs_are_told_of_what_comes_and_goes(site: Site) -> None:
    spool = site.path / "pushed"
    site.ok("bob", "repo create people/bob/x")
    spool.mkdir()
    for command in ("create people/bob/y", "archive people/bob/x", "restore people/bob/x"):
        site.ok("bob", f"repo {command}")
        (marker,) = spool.iterdir()
        assert marker.name == command.split()[1].replace("/", "+")
        marker.unlink()


def test_what_is_gone_from_disk_is_not_restored(site: Site) -> None:
    site.ok("bob", "repo create people/bob/x")
    site.ok("bob", "repo archive people/bob/x")
    (site.repos / "people/bob/x").rename(site.path / "elsewhere")
    assert "it has been deleted" in site.ssh("bob", "repo restore people/bob/x").stderr


# --- registry apply -------------------------------------------------------------------------


def apply(site: Site, static: Registry) -> list[str]:
    said: list[str] = []
    target = provision.Target(
        root=site.repos,
        compiled=site.path / "registry.json",
        manifests=Path(MANIFESTS),
        hgrc=site.path / "hgrc",
        owner=Owner(os.geteuid(), os.getegid()),
        dynamic=site.file,
    )
    changed = provision.apply(static, target, write=True, diff=False, say=said.append)
    return [*said, f"changed={changed}"]


def test_registry_apply_keeps_what_people_created_in_line(site: Site) -> None:
    static = site.declare()
    apply(site, static)
    site.ok("bob", "repo create open/x")
    assert apply(site, static) == ["changed=0"]
    (site.repos / "open/x/.hg/hgrc").write_text("[hooks]\nx = y\n")
    assert apply(site, static) == ["open/x: .hg/hgrc written", "changed=1"]
    assert "path = open/x\n" in (site.repos / "open/x/.hg/hgrc").read_text()


def test_registry_apply_names_what_the_inventory_puts_out_of_service(site: Site) -> None:
    site.ok("bob", "repo create open/x")
    said = apply(site, site.declare(open__x=("Declared", Settings())))
    assert "open/x: created by a person, and open/x of the inventory hides it" in said
    assert "owner = " not in (site.repos / "open/x/.hg/hgrc").read_text()
    assert "open/x" in site.entries


def test_an_archived_repository_is_not_given_to_others_by_declaring_its_path(site: Site) -> None:
    site.ok("bob", "repo create open/x --read private")
    site.ok("bob", "repo archive open/x")
    with pytest.raises(HostError, match="bob has archived a repository there"):
        apply(site, site.declare(open__x=("Declared", Settings())))


def test_registry_apply_goes_on_without_a_dynamic_registry_that_makes_no_sense(site: Site) -> None:
    site.file.write_text("half")
    said = apply(site, site.declare())
    assert any(line.startswith(f"{site.file}: not a dynamic registry") for line in said)
    assert (site.repos / "hgfleet/.hg").is_dir()

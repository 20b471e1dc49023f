"""Upgrades of real repositories: nothing is lost, nobody notices, any moment may be the last."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg.command_server import Hg
from hgfleet.registry.compiled import dump_compiled
from hgfleet.registry.model import Settings, build
from hgfleet.storage import place
from testing.bench.repos import OLD_FORMAT, Size, generate

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parents[2]
HG = Path(sys.executable).with_name("hg")
STEADY = f"pinned_store = {TOP}/hgext/pinned_store.py\n"
HGRC = f"""\
[ui]
username = test
[experimental]
evolution = all
[phases]
publish = no
[extensions]
{STEADY}"""

EVERYTHING = "{node} {p1node} {p2node} {phase} {branch} {bookmarks} {obsolete} {files}\\n"

KILLS = 10


class Site:
    """A host with one repository in the format of long ago."""

    def __init__(self, path: Path, template: Path) -> None:
        self.path = path
        self.root = path / "repos"
        self.repository = self.root / "team/old"
        self.store = self.repository / ".hg/store"
        self.hgrc = path / "hgrc"
        self.hgrc.write_text(HGRC)
        # Opens the repository for each command anew, and saves the starts of Python.
        self.server = Hg(HG, self.hgrc)
        shutil.copytree(template, self.repository, symlinks=True)
        registry = build({"team/old": ("", Settings())}, {}, Settings(push=("all",)))
        (path / "registry.json").write_text(dump_compiled(registry))

    def environment(self) -> dict[str, str]:
        return {
            "HGRCPATH": str(self.hgrc),
            "HGPLAIN": "1",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(TOP),
        }

    def hg(self, *words: str | Path, where: Path | None = None) -> str:
        command, *more = words
        return self.server.run(command, "-R", where or self.repository, "--cwd", self.root, *more)

    def words(self, *words: str) -> list[str]:
        paths = ["--registry", f"{self.path}/registry.json", "--dynamic", f"{self.path}/none"]
        paths += ["--root", str(self.root), "--hgrc", str(self.hgrc), "--user", "root"]
        return [sys.executable, "-m", "hgfleet", "storage", *words, *paths]

    def storage(self, *words: str, code: int = 0) -> str:
        # A server has its last repository open for a while.
        self.server.close()
        done = subprocess.run(
            self.words(*words), env=self.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def upgrade(self, code: int = 0) -> str:
        return self.storage("upgrade", "--no-measure", "--format", "text", code=code)

    def script(self, text: str, *, hgrc: Path | None = None) -> subprocess.Popen[str]:
        """Run Python with `repo`, the repository as a session has it, and `wait`."""
        head = (
            "import sys\n"
            "from mercurial import context, extensions, ui as u\n"
            "from mercurial.repo import factory\n"
            "ui = u.ui.load(); extensions.loadall(ui)\n"
            f"repo = factory.repository(ui, {os.fsencode(self.repository)!r})\n"
            "def wait():\n    print('ready', flush=True); sys.stdin.readline()\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", head + text],
            env=self.environment() | ({"HGRCPATH": str(hgrc)} if hgrc else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def all(self) -> str:
        """Everything that the repository says of itself, hidden changesets included."""
        return "\n".join(
            [
                self.hg("log", "--hidden", "-r", "all()", "-T", EVERYTHING),
                self.hg("log", "-r", "all()", "-T", "{rev} {node}\n"),
                self.hg("bookmarks", "-T", "{bookmark} {node}\n"),
                self.hg("debugobsolete"),
                self.hg("debugdata", "-m", "7"),
            ]
        )

    def assert_modern(self) -> None:
        assert "revlog-compression-zstd" in (self.store / "requires").read_text()
        assert not (self.repository / ".hg" / place.WORK).exists()
        self.hg("verify", "--quiet")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Branches, merges, tags, bookmarks; a secret, an obsolete and a hidden changeset."""
    path = tmp_path_factory.mktemp("template")
    repository = path / "old"
    generate(repository, Size(changesets=500, files=30), seed=3, formats=OLD_FORMAT)
    hgrc = path / "hgrc"
    hgrc.write_text(HGRC)

    def hg(*words: str) -> None:
        subprocess.run(
            [HG, "-R", repository, *words],
            env={"HGRCPATH": str(hgrc), "PATH": os.environ["PATH"]},
            check=True,
            capture_output=True,
        )

    hg("update", "--quiet", "default")
    (repository / "draft").write_text("first\n")
    hg("commit", "--addremove", "--message", "draft")
    (repository / "draft").write_text("second\n")
    hg("commit", "--amend", "--message", "draft, amended")
    (repository / "hidden from all").write_text("secret\n")
    hg("commit", "--addremove", "--secret", "--message", "secret")
    hg("bookmark", "--rev", "tip", "a mark")
    hg("update", "--quiet", "null")
    control = repository / ".hg"
    assert "share-safe" not in (control / "requires").read_text()
    (control / "hgrc").write_text("[web]\ndescription = ours\n")
    (control / "clonebundles.manifest").symlink_to("/var/lib/hgfleet/manifests/old.manifest")
    (control / "store/pushlog").write_text("who, when\n")
    (control / "store/ours").mkdir()
    (control / "store/ours/file").write_text("kept\n")
    for folder in (control, control / "store"):
        folder.chmod(0o2750)
    return repository


@pytest.fixture
def site(tmp_path: Path, template: Path) -> Iterator[Site]:
    made = Site(tmp_path, template)
    yield made
    made.server.close()


def test_nothing_is_lost(site: Site) -> None:
    before = site.all()
    plan = site.storage("plan")
    assert "team/old: upgrade\n    no generaldelta" in plan
    assert "1 of 1 repositories need an upgrade" in plan
    said = site.storage("upgrade", "--format", "text")
    assert "team/old: upgraded in" in said
    assert "zlib -> zstd generaldelta sparse" in said
    assert site.all() == before
    site.assert_modern()
    # `hg rollback` would go back to a store that is no more.
    assert not [*site.store.glob("undo*"), *(site.repository / ".hg").glob("undo*")]
    control = site.repository / ".hg"
    assert (control / "hgrc").read_text() == "[web]\ndescription = ours\n"
    assert (control / "clonebundles.manifest").readlink().name == "old.manifest"
    assert (site.store / "pushlog").read_text() == "who, when\n"
    assert (site.store / "ours/file").read_text() == "kept\n"
    assert stat.S_IMODE(site.store.stat().st_mode) == 0o2750
    for file in site.store.rglob("*.i"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o640, file
    # 0x28 is zstd, 0x78 would be zlib.
    assert "0x78" not in site.hg("debugrevlog", "-m")


def test_the_second_time_there_is_nothing_to_do(site: Site) -> None:
    site.upgrade()
    before = _digest(site.repository)
    assert "1 repositories, 0 upgraded, 0 failed" in site.upgrade()
    assert _digest(site.repository) == before
    assert "zstd generaldelta sparse" in site.storage("status")


def test_a_dry_run_changes_nothing(site: Site) -> None:
    before = _digest(site.repository)
    assert "team/old: upgrade" in site.storage("upgrade", "--dry-run")
    site.storage("status", "--json")
    assert _digest(site.repository) == before


def test_a_damaged_repository_is_refused_and_left_as_it_is(site: Site) -> None:
    file = site.store / "00manifest.i"
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    before = _digest(site.store)
    said = site.upgrade(code=65)
    assert "team/old: FAILED: Mercurial says:" in said
    assert _digest(site.store) == before
    assert site.hg("log", "-r", "0", "-T", "{rev}") == "0"


def test_a_missing_file_is_found_by_verify(site: Site) -> None:
    lines = (site.store / "fncache").read_text().splitlines(keepends=True)
    (site.store / "fncache").write_text("".join(lines[1:]))
    before = _digest(site.store)
    assert "hg verify finds the repository damaged" in site.upgrade(code=65)
    assert _digest(site.store) == before


def test_one_failure_is_no_reason_to_stop_for_others(site: Site, template: Path) -> None:
    for name in ("broken", "fine"):
        shutil.copytree(template, site.root / name, symlinks=True)
    (site.root / "broken/.hg/requires").write_text("revlogv1\nstore\ntreemanifest\n")
    registry = build(
        {path: ("", Settings()) for path in ("broken", "fine", "team/old")},
        {},
        Settings(push=("all",)),
    )
    (site.path / "registry.json").write_text(dump_compiled(registry))
    said = site.storage("upgrade", "--no-measure", "--jobs", "2", code=71)
    assert 'event=storage.failed repository=broken error="it has treemanifest' in said
    assert "event=storage.done repositories=3 upgraded=2 failed=1 failures=broken" in said


def test_an_interrupted_push_is_cleaned_up_first(site: Site) -> None:
    (site.store / "journal").touch()
    assert "run `hg recover" in site.upgrade(code=71)
    assert not (site.store / "requires").exists()


def test_who_began_to_read_goes_on_in_the_old_store(site: Site) -> None:
    read = (
        "whole = repo.unfiltered(); cl = whole.changelog; ml = whole.manifestlog\n"
        "ml[cl.read(cl.node(5))[0]].read(); wait()\n"
        "for n in cl:\n"
        "    ml[cl.read(cl.node(n))[0]].read()\n"
        "    for f in whole[n].files():\n"
        "        f in whole[n] and whole[n][f].data()\n"
        "print('fine')\n"
    )
    reader = site.script(read)
    bare = site.path / "bare"
    bare.write_text(HGRC.replace(STEADY, ""))
    without = site.script(read, hgrc=bare)
    for one in (reader, without):
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n", one.communicate()
    said = site.upgrade()
    assert "the old store stays for now" in said
    assert "in .hg/storage-upgrade" in site.storage("status")
    # Moved away for a moment, so that the one without the extension meets the new store alone.
    said_by_reader, complaints = reader.communicate("\n")
    assert said_by_reader.endswith("fine\n"), complaints
    assert not without.communicate("\n")[0].endswith("fine\n")
    assert "its old store is removed" in site.upgrade()
    site.assert_modern()


def test_who_waited_for_the_lock_writes_to_the_new_store(site: Site) -> None:
    writer = site.script(
        "len(repo); wait()\n"
        "with repo.wlock(), repo.lock(), repo.transaction(b'push'):\n"
        "    content = lambda r, c, p: context.memfilectx(r, c, p, b'late\\n')\n"
        "    parents = [repo.changelog.node(0), repo.nullid]\n"
        "    made = context.memctx(repo, parents, b'late', [b'late'], content, user=b'late')\n"
        "    print(made.commit().hex())\n"
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    site.upgrade()
    said, complaints = writer.communicate("\n")
    assert writer.returncode == 0, complaints
    assert site.hg("log", "-r", "user(late)", "-T", "{node}\n") == said
    site.upgrade()
    site.assert_modern()


def test_a_push_that_would_write_names_of_another_encoding_is_refused(site: Site) -> None:
    writer = site.script("len(repo); wait()\nwith repo.lock(): pass\n")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    other = site.repository / ".hg/other"
    shutil.copytree(site.store, other)
    (other / "requires").write_text("revlogv1\nstore\nfncache\n")
    (site.store / "requires").write_text("revlogv1\nstore\nfncache\ndotencode\n")
    place.rename_exchange(site.store, other)
    _, complaints = writer.communicate("\n")
    assert "was renewed after this session began" in complaints
    assert not (other / "lock").is_symlink()
    assert not (site.store / "lock").is_symlink()


def test_the_upgrade_of_core_works_beside_the_extension(site: Site) -> None:
    before = site.all()
    for setting in ("yes", "no"):
        config = f"format.sparse-revlog={setting}"
        site.hg("debugupgraderepo", "--run", "--no-backup", "--quiet", "--config", config)
        assert ("sparserevlog" in (site.store / "requires").read_text()) is (setting == "yes")
        assert site.all() == before
    site.hg("verify", "--quiet")


def test_clones_and_pushes_go_on(site: Site) -> None:
    clone = site.path / "clone"
    subprocess.run(
        [HG, "clone", "-q", "--pull", "-U", site.repository, clone],
        env=site.environment(),
        check=True,
    )
    site.hg("update", "-q", "default", where=clone)
    stop, problems, done = threading.Event(), list[str](), {"push": 0, "clone": 0}

    def push() -> None:
        for number in range(1000):
            if stop.is_set():
                return
            (clone / "pushed").write_text(f"{number}\n")
            site.hg("commit", "-q", "-A", "-m", f"push {number}", where=clone)
            site.hg("push", "-q", "-r", ".", "--force", site.repository, where=clone)
            done["push"] += 1

    def pull() -> None:
        for number in range(1000):
            if stop.is_set():
                return
            target = site.path / f"clone-{number}"
            subprocess.run(
                [HG, "clone", "-q", "--pull", "-U", site.repository, target],
                env=site.environment(),
                check=True,
                capture_output=True,
                text=True,
            )
            shutil.rmtree(target)
            done["clone"] += 1

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except (AssertionError, subprocess.CalledProcessError) as error:
            problems.append(f"{error} {getattr(error, 'stderr', '')}")

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (push, pull)]
    for thread in threads:
        thread.start()
    said = site.upgrade()
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert done["push"]
    assert done["clone"]
    assert "pushes waited for at most" in said
    pushed = site.hg("log", "-r", "desc('re:^push ')", "-T", "{desc}\n").splitlines()
    assert pushed == [f"push {number}" for number in range(done["push"])]
    site.upgrade()
    site.assert_modern()


def test_it_may_be_killed_at_any_moment(site: Site) -> None:
    before = site.all()
    whole = site.path / "whole"
    shutil.copytree(site.repository, whole, symlinks=True)
    began = time.monotonic()
    site.upgrade()
    took = time.monotonic() - began
    chance, killed = random.Random(4), 0
    shutil.rmtree(site.repository)
    whole.rename(site.repository)
    for _ in range(KILLS):
        process = subprocess.Popen(
            site.words("upgrade", "--no-measure"),
            env=site.environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(chance.uniform(0.2, 1) * took)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
        assert site.all() == before
        if "share-safe" in (site.repository / ".hg/requires").read_text():
            site.hg("verify", "--quiet")
    assert killed
    site.upgrade()
    assert site.all() == before
    site.assert_modern()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_beside_the_exchange_leaves_a_repository(site: Site, when: str) -> None:
    before = site.all()
    kill = "os.kill(os.getpid(), 9)"
    steps = [kill, "real(*a)"] if when == "before" else ["real(*a)", kill]
    hook = (
        "import os, sys\nfrom hgfleet.storage import place, worker\nreal = place.rename_exchange\n"
        "def exchange(*a):\n"
        "    if a[0].name != 'store': return real(*a)\n"
        f"    {steps[0]}\n    {steps[1]}\n"
        "place.rename_exchange = exchange\n"
        f"sys.exit(worker.main(['upgrade', {str(site.repository)!r}, 'no', '']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hook],
        env=site.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    is_new = "zstd" in (site.store / "requires").read_text()
    assert is_new is (when == "after")
    assert site.all() == before
    said = site.upgrade()
    assert ("its old store is removed" in said) is (when == "after")
    assert site.all() == before
    site.assert_modern()


def _digest(folder: Path) -> str:
    """A hash of all files and links below a folder, without caches."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if "cache" in name or path.is_dir():
            continue
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        found.update(name.encode() + b"\0" + content + b"\0")
    return found.hexdigest()

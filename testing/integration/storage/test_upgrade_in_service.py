"""Upgrades while sessions read and write, and upgrades that are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from hgfleet.storage import work_folder
from testing.integration.storage.site import HGRC, STEADY, StorageSite
from testing.integration.support.site import program

KILLS = 10
LONGEST_S = 300.0
"""Bound of the upgrade that is measured first, on a busy machine."""


def test_a_reader_that_began_before_the_exchange_goes_on_in_the_old_store(
    site: StorageSite,
) -> None:
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
    bare = site.root / "bare"
    bare.write_text(HGRC.replace(STEADY, ""))
    without = site.script(read, hgrc=bare)
    for process in (reader, without):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    said = site.upgrade()
    assert "the old store stays for now" in said
    assert "in .hg/storage-upgrade" in site.storage("status")
    # Moved away for a moment, so that hg without the extension meets only the new store.
    said_by_reader, complaints = reader.communicate("\n")
    assert said_by_reader.endswith("fine\n"), complaints
    assert not without.communicate("\n")[0].endswith("fine\n")
    assert "its old store is removed" in site.upgrade()
    site.assert_modern()


def test_a_writer_that_waited_for_the_lock_writes_to_the_new_store(site: StorageSite) -> None:
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
    assert site.old("log", "-r", "user(late)", "-T", "{node}\n") == said
    site.upgrade()
    site.assert_modern()


def test_a_push_that_would_write_names_of_another_encoding_is_refused(site: StorageSite) -> None:
    writer = site.script("len(repo); wait()\nwith repo.lock(): pass\n")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    other = site.repository / ".hg/other"
    shutil.copytree(site.store, other)
    (other / "requires").write_text("revlogv1\nstore\nfncache\n")
    (site.store / "requires").write_text("revlogv1\nstore\nfncache\ndotencode\n")
    work_folder.rename_exchange(site.store, other)
    _, complaints = writer.communicate("\n")
    assert "was renewed after this session began" in complaints
    assert not (other / "lock").is_symlink()
    assert not (site.store / "lock").is_symlink()


def test_the_upgrade_of_core_works_beside_the_extension(site: StorageSite) -> None:
    before = site.all()
    for setting in ("yes", "no"):
        config = f"format.sparse-revlog={setting}"
        site.old("debugupgraderepo", "--run", "--no-backup", "--quiet", "--config", config)
        assert ("sparserevlog" in (site.store / "requires").read_text()) is (setting == "yes")
        assert site.all() == before
    site.old("verify", "--quiet")


def test_clones_and_pushes_go_on(site: StorageSite) -> None:
    clone = site.root / "clone"
    subprocess.run(
        [program(), "clone", "-q", "--pull", "-U", site.repository, clone],
        env=site.environment(),
        check=True,
    )
    site.old("update", "-q", "default", where=clone)
    stop, problems, done = threading.Event(), list[str](), {"push": 0, "clone": 0}

    def push() -> None:
        for number in range(1000):
            if stop.is_set():
                return
            (clone / "pushed").write_text(f"{number}\n")
            site.old("commit", "-q", "-A", "-m", f"push {number}", where=clone)
            site.old("push", "-q", "-r", ".", "--force", site.repository, where=clone)
            done["push"] += 1

    def pull() -> None:
        for number in range(1000):
            if stop.is_set():
                return
            target = site.root / f"clone-{number}"
            subprocess.run(
                [program(), "clone", "-q", "--pull", "-U", site.repository, target],
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
    pushed = site.old("log", "-r", "desc('re:^push ')", "-T", "{desc}\n").splitlines()
    assert pushed == [f"push {number}" for number in range(done["push"])]
    site.upgrade()
    site.assert_modern()


def test_an_upgrade_may_be_killed_at_any_moment(site: StorageSite) -> None:
    def is_upgraded() -> bool:
        return "share-safe" in (site.repository / ".hg/requires").read_text()

    before = site.all()
    whole = site.root / "whole"
    shutil.copytree(site.repository, whole, symlinks=True)
    # Seconds of the last upgrade of the whole repository, under the load of the machine then.
    took = LONGEST_S
    chance, killed = random.Random(4), 0
    while killed < KILLS:
        # A kill after the exchange leaves the next run little to do.
        was_upgraded = is_upgraded()
        began = time.monotonic()
        process = subprocess.Popen(
            site.argv("upgrade", "--no-measure"),
            env=site.environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.wait(chance.uniform(0.2, 1) * took) == 0
            if not was_upgraded:
                took = time.monotonic() - began
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
        assert site.all() == before
        if is_upgraded():
            site.old("verify", "--quiet")
        if process.returncode == 0:
            shutil.rmtree(site.repository)
            shutil.copytree(whole, site.repository, symlinks=True)
    site.upgrade()
    assert site.all() == before
    site.assert_modern()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_beside_the_exchange_leaves_a_repository(site: StorageSite, when: str) -> None:
    before = site.all()
    kill = "os.kill(os.getpid(), 9)"
    steps = [kill, "real(*a)"] if when == "before" else ["real(*a)", kill]
    hook = (
        "real = work_folder.rename_exchange\n"
        "def exchange(*a):\n"
        "    if a[0].name != 'store': return real(*a)\n"
        f"    {steps[0]}\n    {steps[1]}\n"
        "work_folder.rename_exchange = exchange\n"
    )
    code, said = site.worker(hook)
    assert code == -signal.SIGKILL, said
    is_new = "zstd" in (site.store / "requires").read_text()
    assert is_new is (when == "after")
    assert site.all() == before
    said = site.upgrade()
    assert ("its old store is removed" in said) is (when == "after")
    assert site.all() == before
    site.assert_modern()

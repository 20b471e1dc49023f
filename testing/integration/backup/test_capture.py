"""A repository copied during pushes restores to a state that it had."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.point import recovered, rewritten
from hgfleet.backup.point.capture import capture
from hgfleet.core.errors import HostError
from testing.integration.backup.pushes import described, pushing, states_of
from testing.integration.support import site
from testing.integration.support.primary import Primary

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.backup.point.point import Point

COPIES = 8


def copy(source: Path, target: Path) -> None:
    """Copy file by file in the order of names, as restic does, while pushes go on."""
    target.mkdir()
    for path in sorted(source.rglob("*")):
        there = target / path.relative_to(source)
        if path.is_dir():
            there.mkdir(parents=True, exist_ok=True)
            continue
        # A file of a transaction may be gone.
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, there)


def verify(repository: Path) -> None:
    done = subprocess.run(
        [site.HG, "-R", repository, "verify"],
        env={"HGRCPATH": "", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr, done.stdout + done.stderr


def copied(repository: Path, target: Path) -> Point | None:
    """Back a repository up by hand and restore it; None if a file was rewritten in between."""
    before = rewritten.files(repository / ".hg/store")
    point = capture(repository / ".hg", "team/x")
    # The point lies before several pushes, or the copy would hardly differ from it.
    seen = (repository / ".hg/store/pushlog").stat().st_size
    while (repository / ".hg/store/pushlog").stat().st_size < seen + 2000:
        time.sleep(0.001)
    copy(repository, target)
    if rewritten.rewritten(before, rewritten.files(repository / ".hg/store")):
        return None
    recovered.rebuild(target / ".hg", point)
    return point


def test_a_copy_under_continuous_pushes_is_a_state_of_its_time(tmp_path: Path) -> None:
    repository, states = tmp_path / "repository", tmp_path / "states"
    points = {}
    with pushing(repository, states):
        for number in range(COPIES):
            started = len(states.read_text().splitlines())
            if point := copied(repository, tmp_path / str(number)):
                points[number] = started, point
    assert len(points) > COPIES // 2
    known = states_of(states)
    for number, (started, point) in points.items():
        verify(tmp_path / str(number))
        assert point.push_id >= started
        assert described(tmp_path / str(number)) == known[point.push_id - 1]


KILLED = """\
import os, signal, sys
from random import Random
from pathlib import Path
from testing.integration.support.primary import Primary
import mercurial.transaction as t
primary = Primary.__new__(Primary)
primary.path, primary.identity, primary.epoch = Path(sys.argv[1]), "7d" * 16, 1
from testing.integration.support import primary as support
from mercurial.repo import factory
primary.repo = factory.repository(support.new_ui(), os.fsencode(primary.path)).unfiltered()
primary.log = primary.path / ".hg/store/pushlog"
with primary.push() as tr:
    for _ in range(3):
        primary.commit()
    marks = primary.repo._bookmarks
    marks.applychanges(primary.repo, tr, [(b"@", primary.repo.changelog.tip())])
    primary.repo.svfs.write(b"note", b"")
    if sys.argv[2] == "running":
        print("ready", flush=True)
        sys.stdin.readline()
    else:
        tr._debug_abort = t.KILL_9_POST_FINALIZE
"""


@pytest.mark.parametrize("when", ["running", "killed"])
def test_a_transaction_that_is_not_committed_is_left_out(tmp_path: Path, when: str) -> None:
    repository = tmp_path / "repository"
    primary = Primary(repository)
    primary.push_commits(3)
    before = described(repository)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, repository, when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    if when == "running":
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    else:
        assert process.wait(60) == -signal.SIGKILL
        assert described(repository) != before
    assert (repository / ".hg/store/journal").exists()
    point = capture(repository / ".hg", "team/x")
    copy(repository, tmp_path / "copy")
    process.communicate(b"\n")
    recovered.rebuild(tmp_path / "copy/.hg", point)
    verify(tmp_path / "copy")
    assert described(tmp_path / "copy") == before


def test_a_copy_that_misses_changesets_is_refused(tmp_path: Path) -> None:
    primary = Primary(tmp_path / "repository")
    primary.push_commits(2)
    copy(primary.path, tmp_path / "copy")
    primary.push_commits(1)
    point = capture(primary.path / ".hg", "team/x")
    with pytest.raises(HostError, match=r"has 2 changesets .* expected 3 .* restore an older"):
        recovered.rebuild(tmp_path / "copy/.hg", point)


def test_a_rewritten_file_is_noticed(tmp_path: Path) -> None:
    primary = Primary(tmp_path / "repository")
    primary.push_commits(1)
    store = primary.path / ".hg/store"
    before = rewritten.files(store)
    primary.push_commits(1)
    assert rewritten.rewritten(before, rewritten.files(store)) == []
    file = store / "data/file0.i"
    # As Mercurial does when data moves out of an index.
    shutil.copy(file, store / "new")
    (store / "new").rename(file)
    assert rewritten.rewritten(before, rewritten.files(store)) == [str(file)]

"""Bit rot in a store of a real repository: it is found and named, and a copy is made good."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from mercurial import obsolete, phases

from hgfleet.core import identity
from hgfleet.core.errors import HgfleetError, HostError, PushlogError
from hgfleet.core.report import Report
from hgfleet.hg.fingerprint import SETTLED_NS
from hgfleet.integrity import repair, run, state
from hgfleet.integrity.check import check
from testing.integration.backup.pushes import described
from testing.integration.support.primary import Primary
from testing.integration.support.site import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PUSHES = 6


def flip(file: Path, offset: int) -> None:
    """Flip a bit of a file and leave its times, as a disk does."""
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    with file.open("r+b") as opened:
        opened.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def settle() -> None:
    """Let the clock of files go on, so that the newest change is told from a later change."""
    time.sleep(2 * SETTLED_NS / 1e9)


@pytest.fixture(autouse=True)
def environment_of_the_tests() -> Iterator[None]:
    """Bring the environment back: a repair, which is a process of its own, changes it."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def primary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Primary:
    """A repository with a file per push, below a folder of repositories."""
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    repository = Primary(tmp_path / "repos/team/x")
    for number in range(PUSHES):
        with repository.push():
            repository.commit(b"line %d\n" % number * 200)
    (repository.path / ".hg/hgrc").touch()
    settle()
    return repository


def push_later(primary: Primary) -> None:
    """Push changesets, a bookmark, a phase and a marker."""
    with primary.push():
        first = primary.commit(b"later\n" * 500)
        second = primary.commit()
    repo = primary.repo
    with primary.push() as tr:
        repo._bookmarks.applychanges(repo, tr, [(b"@", first)])
    with primary.push() as tr:
        phases.advanceboundary(repo, tr, phases.public, [first])
    with primary.push():
        made = primary.commit(b"amended\n", parent=first)
        obsolete.createmarkers(repo, [((repo[second],), (repo[made],))])


def file_of(primary: Primary, name: str) -> Path:
    """Return the first file of the store whose path ends so."""
    files = sorted((primary.path / ".hg/store").rglob(name))
    assert files, name
    return files[0]


def test_a_good_repository_has_no_problem(primary: Primary) -> None:
    assert check(primary.path) == ""


@pytest.mark.parametrize(
    ("name", "offset", "named"),
    [
        ("file2.i", 40, "file2@"),
        ("file2.i", -3, "file2@"),
        ("00manifest.i", 90, "manifest"),
        ("00changelog.*", 90, "changelog"),
        ("pushlog", 40, "push log: "),
    ],
)
def test_a_flipped_bit_is_found_and_named(
    primary: Primary, name: str, offset: int, named: str
) -> None:
    flip(file_of(primary, name), offset)
    settle()
    assert named in check(primary.path)


def test_changesets_without_a_record_are_found(primary: Primary) -> None:
    repo = primary.repo
    with repo.wlock(), repo.lock(), repo.transaction(b"past the log"):
        primary.commit(b"foreign\n")
    settle()
    said = check(primary.path)
    assert said == f"push log: its store has other heads than after record {PUSHES} of its push log"


def test_a_verifier_that_cannot_run_is_no_damage(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    with pytest.raises(HostError, match=r"the verifier ended with 1: .*No module named 'hgfleet'"):
        check(primary.path)


def test_a_run_goes_on_where_a_repository_cannot_be_verified(
    primary: Primary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    outcome = run.run(tmp_path / "repos", tmp_path / "state", Report(part="integrity"), 30)
    assert (outcome.corrupt, outcome.failed) == (
        {},
        [str(primary.path.relative_to(tmp_path / "repos"))],
    )
    assert state.load(tmp_path / "state").repositories["team/x"].time == 0


def test_a_run_names_the_corrupt_repository_and_a_later_one_the_repair(
    primary: Primary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, folder = tmp_path / "repos", tmp_path / "state"
    folder.mkdir()
    report = Report("events", part="integrity")
    copy = tmp_path / "copy"
    shutil.copytree(primary.path, copy)
    assert not run.run(root, folder, report, 30).corrupt
    flip(file_of(primary, "file2.i"), -3)
    settle()
    # The share of a night: a site's only repository is verified each night.
    outcome = run.run(root, folder, report, 30)
    assert list(outcome.corrupt) == ["team/x"]
    assert "event=integrity.corrupt repository=team/x problem=" in capsys.readouterr().out
    assert state.load(folder).data()["corrupt"] == ["team/x"]
    shutil.rmtree(primary.path)
    copy.rename(primary.path)
    settle()
    assert not run.run(root, folder, report, 30, ["team/x"]).corrupt
    assert state.load(folder).data()["corrupt"] == []


def test_a_repository_that_took_the_path_of_a_corrupt_one_is_not_corrupt(
    primary: Primary, tmp_path: Path
) -> None:
    root, folder = tmp_path / "repos", tmp_path / "state"
    folder.mkdir()
    report = Report("events", part="integrity")
    good = tmp_path / "good"
    shutil.copytree(primary.path, good)
    (good / identity.FILE).write_text(identity.text("b" * 32))
    (primary.path / identity.FILE).write_text(identity.text("a" * 32))
    flip(file_of(primary, "file2.i"), -3)
    settle()
    assert list(run.run(root, folder, report, 30).corrupt) == ["team/x"]
    verified = state.load(folder).repositories["team/x"].time
    primary.path.rename(primary.path.with_name("y"))
    good.rename(primary.path)
    settle()
    # Nothing is verified for it: the result is the other repository's, at its new path.
    assert list(run.run(root, folder, report, 30, ["team/x"]).corrupt) == ["team/y"]
    results = state.load(folder).repositories
    assert (results["team/y"].time, results["team/y"].identity) == (verified, "a" * 32)
    assert results["team/x"].identity == "b" * 32


def test_a_copy_of_the_backup_gets_the_pushes_of_the_corrupt_repository(
    primary: Primary, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(primary.path, copy)
    before = len(primary.entries())
    push_later(primary)
    good = described(primary.path)
    # Old data, which no later push reads.
    flip(file_of(primary, "file3.i"), -3)
    settle()
    assert check(primary.path) != ""

    log = [entry.line for entry in primary.entries()]
    assert repair.complete(copy, primary.path, log) == len(log) - before

    assert described(copy) == good
    settle()
    assert check(copy) == ""


def test_corrupt_data_of_later_pushes_gets_into_no_copy(primary: Primary, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(primary.path, copy)
    push_later(primary)
    flip(file_of(primary, "file6.i"), -3)
    log = [entry.line for entry in primary.entries()]
    with pytest.raises(HostError, match="cannot take the state of"):
        repair.complete(copy, primary.path, log)


def test_the_log_of_a_backup_goes_on_with_later_records_only(primary: Primary) -> None:
    lines = [entry.line for entry in primary.entries()]
    here = lines[:3]
    assert repair.continued(here, lines) == lines
    assert repair.continued(lines, lines) == lines
    # Damage of records that the backup has does not matter.
    assert repair.continued(here, [b"x", *lines[1:]]) == lines
    assert repair.continued(here, [b"x", b"y", *lines[1:]]) == lines
    for broken in ([*lines[:4], b"x"], [*lines[:3], *lines[4:]], [*lines[:5], b"{}", lines[5]]):
        with pytest.raises(PushlogError, match="corrupt after record"):
            repair.continued(here, broken)


def test_a_host_without_a_good_copy_says_so() -> None:
    with pytest.raises(HgfleetError, match="no mirror and has no backups"):
        repair.repair("team/x", None, None)


def test_a_copy_with_other_heads_than_its_record_is_refused(primary: Primary) -> None:
    log = primary.log.read_bytes().splitlines(keepends=True)
    primary.log.write_bytes(b"".join(log[:-1]))
    settle()
    with pytest.raises(HostError, match="other heads than after record"):
        repair._demand(primary.path)

"""Runs of the probes: a real clone over HTTP, a real push, their results, their page in a store."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import files
from hgfleet.core.errors import ConfigurationError, TemporaryError, UnavailableError
from hgfleet.objectstore import settings as objectstore
from hgfleet.probes import clone, history, page, run
from hgfleet.probes.settings import Settings
from testing.integration.support.site import HG, Site
from testing.integration.support.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPOSITORY = "canary"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    found = Site(tmp_path, "[ui]\nusername = test\n")
    found.create(REPOSITORY)
    return found


@pytest.fixture
def settings(site: Site) -> Iterator[Settings]:
    """Of probes of the repository, which a real server serves."""
    (site.root / "state").mkdir()
    (site.root / "scratch").mkdir()
    words = ["serve", "-a", "127.0.0.1", "-p", "0", "--print-url"]
    process = subprocess.Popen(
        [HG, "-R", site.path(REPOSITORY), *words],
        env=site.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Settings(
            clone_url=process.stdout.readline().strip(),
            hg=HG,
            state=site.root / "state",
            scratch=site.root / "scratch",
        )
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    found = Store("status")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "status")
    monkeypatch.setattr(run, "Bucket", lambda *_arguments: found)
    yield found
    found.stop()


def in_store(settings: Settings, store: Store) -> Settings:
    there = objectstore.Store("status", store.root, "status", store.url)
    return replace(settings, store=there)


def test_a_clone_is_a_result_and_leaves_nothing_behind(site: Site, settings: Settings) -> None:
    site.commit(REPOSITORY, "one", "1")
    run.run(settings)
    found = history.load(settings.state, history.CLONE)
    assert found.total.succeeded == 1
    assert 0 < found.total.seconds < settings.timeout_seconds
    assert not list(settings.scratch.iterdir())


def test_a_failure_is_a_result_whose_problem_is_in_the_journal(
    site: Site, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    site.commit(REPOSITORY, "one", "1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        run.run(replace(settings, clone_url=f"http://127.0.0.1:{port}"))
    assert history.load(settings.state, history.CLONE).total == history.Sum(failed=1)
    said = capfd.readouterr().out
    assert said.startswith("<4>event=probes.clone result=failed")
    assert "hg clone ended with 255" in said
    assert "refused" in said


def test_a_clone_without_changesets_failed(settings: Settings) -> None:
    """A server that lost its repositories answers with empty ones."""
    assert "no changesets" in clone.attempt(settings)[1]


def test_a_server_that_does_not_answer_ends_a_clone_in_time(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = replace(settings, clone_url=url, timeout_seconds=1.0)
        seconds, problem = clone.attempt(slow)
    assert problem == "the clone was not done after 1 s"
    assert seconds < 20
    assert not list(settings.scratch.iterdir())


def test_a_missing_program_is_a_failure_too(settings: Settings, tmp_path: Path) -> None:
    found = clone.attempt(replace(settings, hg=tmp_path / "hg"))[1]
    assert "No such file" in found


def test_the_page_of_a_result_is_in_the_store(site: Site, settings: Settings, store: Store) -> None:
    site.commit(REPOSITORY, "one", "1")
    run.run(in_store(settings, store))
    text = store.pages[page.INDEX].decode()
    assert "<strong>Clones work</strong>" in text
    found = history.load(settings.state, history.CLONE)
    assert 0 <= found.uploaded - found.results[-1].time < 60


def test_a_result_is_kept_where_the_store_does_not_answer(
    site: Site, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_arguments: object) -> bool:
        raise UnavailableError("no answer")

    site.commit(REPOSITORY, "one", "1")
    monkeypatch.setattr(store, "put_page", silent)
    with pytest.raises(UnavailableError):
        run.run(in_store(settings, store))
    found = history.load(settings.state, history.CLONE)
    assert (found.total.succeeded, found.uploaded) == (1, 0.0)


def test_a_damaged_history_begins_anew_and_is_told(
    site: Site, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    site.commit(REPOSITORY, "one", "1")
    (settings.state / history.name(history.CLONE)).write_text("damage")
    run.run(settings)
    assert history.load(settings.state, history.CLONE).total.attempts == 1
    assert "<4>event=probes.history probe=clone" in capfd.readouterr().out


def test_two_runs_do_not_meet_and_one_without_a_repository_says_so(settings: Settings) -> None:
    with files.open_folder(settings.state) as folder:
        assert files.try_lock(folder)
        with pytest.raises(TemporaryError, match="another run"):
            run.run(settings)
    with pytest.raises(ConfigurationError, match="monitoring_probe_repository"):
        run.run(replace(settings, clone_url=""))

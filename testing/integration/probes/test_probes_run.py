"""Runs of the probes: a real clone over HTTP, a real push, their results, their page in a store."""

from __future__ import annotations

import socket
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import files
from hgfleet.core.errors import ConfigurationError, TemporaryError, UnavailableError
from hgfleet.objectstore.bucket import StoreError
from hgfleet.objectstore.settings import Store
from hgfleet.probes import client, clone, page, result_history, run
from hgfleet.probes.settings import Settings
from testing.integration.support.site import HG, Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from hgfleet.core.errors import HgfleetError
    from testing.conftest import WaitFor

REPOSITORY = "canary"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path, "[ui]\nusername = test\n")
    site.create(REPOSITORY)
    return site


@pytest.fixture
def settings(site: Site) -> Iterator[Settings]:
    """Settings of probes of the repository, which a real server serves."""
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
            state=site.root / "state",
            scratch=site.root / "scratch",
        )
    finally:
        process.terminate()
        process.communicate()


class Pages:
    """An S3 server that keeps each object, and answers each request with the same status."""

    def __init__(self) -> None:
        self.status = 200
        self.put: dict[str, tuple[bytes, Message]] = {}
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                pages.put[self.path] = (body, self.headers)
                self.send_response(pages.status)
                self.end_headers()
                self.wfile.write(b"<Error><Code>AccessDenied</Code></Error>")

            def log_message(self, *_words: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever).start()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    pages = Pages()
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "status")
    yield pages
    pages.server.shutdown()
    pages.server.server_close()


def shown_at(settings: Settings, url: str) -> Settings:
    return replace(settings, store=Store("status", url, "status", url))


def test_a_clone_is_a_result_and_leaves_nothing_behind(site: Site, settings: Settings) -> None:
    site.commit(REPOSITORY, "one", "1")
    run.run(settings)
    clones = result_history.load(settings.state, result_history.CLONE)
    assert clones.total.succeeded == 1
    assert 0 < clones.total.seconds < settings.timeout_seconds
    assert not list(settings.scratch.iterdir())


def test_a_failure_is_a_result_whose_problem_is_in_the_journal(
    site: Site, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    site.commit(REPOSITORY, "one", "1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        run.run(replace(settings, clone_url=f"http://127.0.0.1:{port}"))
    assert result_history.load(settings.state, result_history.CLONE).total == result_history.Sum(
        failed=1
    )
    said = capfd.readouterr().out
    assert said.startswith("<4>event=probes.clone result=failed")
    assert "hg clone ended with 255" in said
    assert "refused" in said


def test_a_clone_without_changesets_failed(settings: Settings) -> None:
    """A server that lost its repositories answers with empty repositories."""
    assert "no changesets" in clone.attempt(settings)[1]


def test_a_server_that_does_not_answer_ends_a_clone_in_time(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = replace(settings, clone_url=url, timeout_seconds=1.0)
        seconds, problem = clone.attempt(slow)
    assert problem == "the clone was not done after 1 s"
    assert seconds < 20
    assert not list(settings.scratch.iterdir())


def test_a_late_command_is_killed_with_the_ssh_that_it_began(
    tmp_path: Path, wait_for: WaitFor
) -> None:
    pid = tmp_path / "pid"
    slow = f"ui.ssh=sh -c 'echo $$ > {pid}; exec sleep 600'"
    words = ["--config", slow, "--", "ssh://localhost/canary", tmp_path / "clone"]
    assert client.hg("clone", words, seconds=2) == ("", "the clone was not done after 2 s")
    state = Path("/proc", pid.read_text().strip(), "stat")

    def has_ended() -> bool:
        # A zombie until its parent, the init of this machine, has seen its end.
        return not state.exists() or state.read_text().split()[2] == "Z"

    wait_for("ssh has ended", has_ended, 10)


def test_a_command_reads_no_configuration_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hgrc").write_text("[alias]\nroot = version\n[ui]\nverbose = yes\n")
    monkeypatch.setenv("HGRCPATH", str(tmp_path / "hgrc"))
    messages, problem = client.hg("config", [], seconds=20)
    assert (messages, problem) == ("", "hg config ended with 1: ")


def test_the_page_of_a_result_is_in_the_store(site: Site, settings: Settings, pages: Pages) -> None:
    site.commit(REPOSITORY, "one", "1")
    run.run(shown_at(settings, pages.url))
    body, headers = pages.put["/status/index.html"]
    assert "<strong>Clones work</strong>" in body.decode()
    assert headers["Content-Type"] == page.CONTENT_TYPE
    assert headers["Cache-Control"] == "public, max-age=30"
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=status/")
    clones = result_history.load(settings.state, result_history.CLONE)
    assert 0 <= clones.uploaded - clones.results[-1].time < 60


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, StoreError),
        (429, UnavailableError),
        (500, UnavailableError),
        (None, UnavailableError),
    ],
)
def test_a_result_is_kept_where_the_store_does_not_take_the_page(
    site: Site, settings: Settings, pages: Pages, status: int | None, error: type[HgfleetError]
) -> None:
    site.commit(REPOSITORY, "one", "1")
    pages.status = status or 200
    url = pages.url if status else "http://127.0.0.1:1"
    with pytest.raises(error, match="AccessDenied" if status else "127.0.0.1:1: cannot upload"):
        run.run(shown_at(settings, url))
    clones = result_history.load(settings.state, result_history.CLONE)
    assert (clones.total.succeeded, clones.uploaded) == (1, 0.0)


def test_a_damaged_history_begins_anew_and_is_told(
    site: Site, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    site.commit(REPOSITORY, "one", "1")
    (settings.state / result_history.name(result_history.CLONE)).write_text("damage")
    run.run(settings)
    assert result_history.load(settings.state, result_history.CLONE).total.attempts == 1
    assert "<4>event=probes.history probe=clone" in capfd.readouterr().out


def test_two_runs_do_not_meet_and_one_without_a_repository_says_so(settings: Settings) -> None:
    with files.open_folder(settings.state) as folder:
        assert files.try_lock(folder)
        with pytest.raises(TemporaryError, match="another run"):
            run.run(settings)
    with pytest.raises(ConfigurationError, match="monitoring_probe_repository"):
        run.run(replace(settings, clone_url=""))

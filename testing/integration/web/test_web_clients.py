"""Real clients over a real server: gunicorn as in production, `hg clone`, `hg pull`, `hg push`."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.registry.dynamic import dynamic_update
from testing.integration.web.support import HGRC, Site
from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

ROOT = Path(__file__).parents[3]

PARTS = (
    *("gunicorn.app.wsgiapp", "gunicorn.workers.gthread"),
    *("hgfleet.web.app", "hgfleet.web.server_hooks"),
)
"""Modules that gunicorn and its workers import before they load a repository."""


@contextlib.contextmanager
def gunicorn_master(
    number: Path, environment: dict[str, str], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run gunicorn with the web part; the file `number` has the process id of its master.

    The master is a fork of a process that has the imports of gunicorn and of the web part; the
    process that is yielded waits for its end.
    """
    start = "import sys; from gunicorn.app import wsgiapp; sys.exit(wsgiapp.run())"
    program = prefork.shared(environment, PARTS).interpreter
    command = [str(program), "-c", start, *options, "--pid", str(number)]
    server = subprocess.Popen([*command, "hgfleet.web.app:application"], env=environment)
    try:
        yield server
    finally:
        try:
            os.kill(int(number.read_text()), signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError, ValueError):
            # It ended, or has not begun.
            server.kill()
        server.wait(60)


@contextlib.contextmanager
def gunicorn(site: Site, wait_for: WaitFor) -> Iterator[str]:
    """Serve the site on a port of this machine and return its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **site.environment,
        "PYTHONPATH": ":".join(sys.path),
        "HGFLEET_WEB_REGISTRY": str(site.settings.registry),
        "HGFLEET_WEB_ROOT": str(site.settings.root),
        "HGFLEET_WEB_ACCESS_LOG": str(site.settings.access_log),
        "HGFLEET_WEB_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "HGFLEET_WEB_SSH_URL": "ssh://hg@hg.example.org",
    }
    options = ("--worker-class", "gthread", "--workers", "2", "--threads", "4")
    options += ("--bind", f"127.0.0.1:{port}", "--no-control-socket", "--log-level", "warning")

    def answers() -> bool:
        assert server.poll() is None, "gunicorn ended"
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True

    with gunicorn_master(site.folder / "gunicorn.pid", environment, *options) as server:
        wait_for("gunicorn listens", answers)
        yield f"http://127.0.0.1:{port}"


class Client:
    """A person with hg and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        hgrc = folder / "hgrc"
        hgrc.write_text("[ui]\nusername = alice <alice@example.org>\n")
        self.environment = {**os.environ, "HGRCPATH": str(hgrc), "LANG": "C.UTF-8"}

    def hg(self, *arguments: str, code: int = 0) -> str:
        done = prefork.shared(self.environment).hg(arguments, self.environment, self.folder)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == code, said
        return said


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(tmp_path_factory.mktemp("client"))


def test_clone_pull_and_incoming_show_what_the_server_has(
    site: Site, client: Client, wait_for: WaitFor
) -> None:
    with gunicorn(site, wait_for) as url:
        client.hg("clone", "-q", f"{url}/team/project", "project")
        heads = client.hg("-R", "project", "log", "-T", "{node}\n")
        assert heads == site.hg("team/project", "log", "-T", "{node}\n")

        new = site.commit("team/project", "three.txt")
        assert "add three.txt" in client.hg("-R", "project", "incoming")
        client.hg("-R", "project", "pull", "-q")
        assert client.hg("-R", "project", "log", "-r", "tip", "-T", "{node}") == new
        assert "no changes found" in client.hg("-R", "project", "pull")
        assert client.hg("-R", "project", "verify", "-q") == ""


def test_a_push_says_where_to_push_and_changes_nothing(
    site: Site, client: Client, wait_for: WaitFor
) -> None:
    with gunicorn(site, wait_for) as url:
        client.hg("clone", "-q", f"{url}/team/project", "project")
        (client.folder / "project" / "mine.txt").write_text("x" * 300_000)
        client.hg("-R", "project", "commit", "-q", "-A", "-m", "mine")
        client.hg("-R", "project", "bookmark", "mine")
        for arguments in (("push",), ("push", "-B", "mine")):
            output = client.hg("-R", "project", *arguments, code=255)
            assert "a push goes over SSH: hg push ssh://hg@hg.example.org/team/project" in output
    assert "mine" not in site.hg("team/project", "log")


def test_who_may_not_read_a_repository_is_told_that_there_is_none(
    site: Site, client: Client, wait_for: WaitFor
) -> None:
    with gunicorn(site, wait_for) as url:
        for name in ("team/secret", "team/missing"):
            output = client.hg("clone", f"{url}/{name}", code=255)
            assert "HTTP Error 404: Not Found" in output


def test_a_clone_comes_out_of_a_bundle_and_the_log_proves_it(
    site: Site, client: Client, wait_for: WaitFor
) -> None:
    store = site.folder / "store"
    store.mkdir()
    site.hg("team/project", "bundle", "-q", "--all", "-t", "zstd-v2", str(store / "all.hg"))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(store))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None: ...

    objects = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=objects.serve_forever)
    thread.start()
    manifest = site.path("team/project") / ".hg" / "clonebundles.manifest"
    manifest.write_text(f"http://127.0.0.1:{objects.server_port}/all.hg BUNDLESPEC=zstd-v2\n")
    try:
        with gunicorn(site, wait_for) as url:
            output = client.hg("clone", f"{url}/team/project", "project")
    finally:
        objects.shutdown()
        thread.join()
        objects.server_close()
    assert re.search(r"applying clone bundle from http://127.0.0.1:\d+/all.hg", output)
    sent = [line for line in site.log() if line.get("command") == "getbundle"]
    assert not any(line["full"] for line in sent)
    assert sum(line["bytes"] for line in sent) < 1000
    assert {line["status"] for line in site.log()} == {200}


def test_a_stream_clone_needs_no_lock_of_the_repository(
    site: Site, client: Client, wait_for: WaitFor
) -> None:
    """Web workers cannot lock a repository, since they cannot write to it."""
    (site.path("team/project") / ".hg/hgrc").write_text("[ui]\ntimeout = 0\n")
    (site.path("team/project") / ".hg/store/lock").symlink_to(f"{socket.gethostname()}:1")
    with gunicorn(site, wait_for) as url:
        client.hg("clone", "--stream", f"{url}/team/project", "project")
    heads = client.hg("-R", "project", "log", "-T", "{node}\n")
    assert heads == site.hg("team/project", "log", "-T", "{node}\n")


def add_heads(site: Site, count: int, label: str) -> None:
    """Add changesets on the first changeset."""
    script = f"""
from mercurial import hg, initialization, metadata, ui
initialization.init()
repo = hg.repository(ui.ui.load(), {str(site.path("team/project"))!r}.encode())
base, null = repo[0].node(), repo.nullid
with repo.lock(), repo.transaction(b"test") as tr:
    for number in range({count}):
        text = b"{label} %d" % number
        repo.changelog.add(
            null, metadata.ChangingFiles(), text, tr, base, null, b"test", b"0 0"
        )
"""
    done = prefork.shared(site.environment).python(script, [], site.environment)
    assert done.returncode == 0, done.stderr.decode()


def test_a_repository_of_ten_thousand_heads_is_cloned_and_pulled(
    site: Site, client: Client, wait_for: WaitFor
) -> None:
    add_heads(site, 10_000, "first")
    with gunicorn(site, wait_for) as url:
        client.hg("clone", "-q", "-U", f"{url}/team/project", "project")
        add_heads(site, 10, "later")
        client.hg("-R", "project", "pull", "-q")
    nodes = client.hg("-R", "project", "log", "-T", "{node}\n").split()
    assert len(nodes) == 10_012
    assert set(nodes) == set(site.hg("team/project", "log", "-T", "{node}\n").split())
    assert {line["status"] for line in site.log()} == {200}


def test_an_old_client_is_not_told_of_a_bundle_that_it_cannot_apply(
    site: Site, wait_for: WaitFor
) -> None:
    hgrc = site.folder / "server.rc"
    hgrc.write_text(
        f"{HGRC}[extensions]\nclonebundles_steer = {ROOT / 'hgext/clonebundles_steer.py'}\n"
        f"[hgfleet]\npath = team/project\nsteering = {site.folder / 'missing.toml'}\n"
        f"compiled = {site.settings.registry}\ndynamic = {site.settings.dynamic}\n"
    )
    site = replace(site, environment={**site.environment, "HGRCPATH": str(hgrc)})
    own = "5f" * 16
    (site.path("team/project") / identity.FILE).write_text(identity.text(own))
    site.settings.dynamic.parent.mkdir(exist_ok=True)
    with dynamic_update.update(site.settings.dynamic) as entries:
        entries.note_identity("team/project", own)
    needed = "none-v2;stream=v2;requirements%3Drevlog-compression-zstd"
    stream = f"https://b/s BUNDLESPEC={needed} identity={own}"
    other = f"https://b/z BUNDLESPEC=zstd-v2 identity={own}"
    manifest = site.path("team/project") / ".hg/clonebundles.manifest"
    manifest.write_text(f"{stream}\n{other}\n")
    with gunicorn(site, wait_for) as url:

        def told(agent: str, command: str) -> list[str]:
            connection = http.client.HTTPConnection(url.removeprefix("http://"))
            path = f"/team/project?cmd={command}"
            connection.request("GET", path, headers={"User-Agent": agent})
            with contextlib.closing(connection):
                return connection.getresponse().read().decode().splitlines()

        for command in ("clonebundles", "clonebundles_manifest"):
            assert told("mercurial/proto-1.0 (Mercurial 4.9)", command) == [other]
            assert told("mercurial/proto-1.0 (Mercurial 5.0.2)", command) == [stream, other]

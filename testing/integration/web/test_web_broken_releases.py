"""The check of a deploy finds the web workers of a broken release (`testing/rolls`)."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.deploy import check
from testing.rolls.releases import BROKEN, Broken
from testing.support import loading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor
    from testing.integration.web.support import Site

ROOT = Path(__file__).parents[3]

probe = loading.module("ansible/on_host/probe.py")

STARTING = [broken for broken in BROKEN if broken.name != "nostart"]


@contextmanager
def served(site: Site, lines: str, name: str, wait_for: WaitFor) -> Iterator[str]:
    """Serve the site by web workers with these additional lines; yield the URL."""
    source = (ROOT / "hgfleet/web/app.py").read_text()
    (site.folder / f"{name}.py").write_text(source + lines)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{site.folder}:{ROOT}",
        "HGFLEET_WEB_REGISTRY": str(site.settings.registry),
        "HGFLEET_WEB_ROOT": str(site.settings.root),
        "HGFLEET_WEB_ACCESS_LOG": str(site.settings.access_log),
        "HGFLEET_WEB_PUBLIC_URL": f"http://127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "gunicorn", "--worker-class", "gthread", "--threads", "8"]
    command += ["--bind", f"127.0.0.1:{port}", "--no-control-socket", "--log-level", "warning"]
    command.append(f"{name}:application")
    server = subprocess.Popen(command, env=environment, start_new_session=True)

    def answers() -> bool:
        assert server.poll() is None, "gunicorn ended"
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True

    try:
        wait_for("gunicorn listens", answers)
        yield f"http://127.0.0.1:{port}"
    finally:
        # A worker whose threads sleep outlives the master.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(60)


def truth(site: Site) -> list[dict[str, Any]]:
    """Return the state of the site's public repository as the primary would tell it."""
    node = site.hg("team/project", "log", "-r", "tip", "-T", "{node}")
    content = (site.path("team/project") / "two.txt").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    repository = {"path": "team/project", "heads": [node], "tip": node, "file": "two.txt"}
    return [{**repository, "sha256": digest}]


@pytest.mark.parametrize(
    "broken", [None, *STARTING], ids=lambda release: release.name if release else "well"
)
def test_the_check_names_the_problem_of_a_broken_release(
    site: Site, broken: Broken | None, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "CA", None)
    monkeypatch.setattr(probe, "PAGE_SECONDS", 4.0)
    lines = broken.lines if broken else ""
    with (
        served(site, "", "peer_app", wait_for) as peer,
        served(site, lines, "changed_app", wait_for) as url,
    ):
        figures = probe.figures(
            {"url": url, "peers": [peer], "primary": peer, "truth": truth(site), "pages": 2}
        )
    problems = check.web_problems(figures, ())
    if broken is None:
        assert problems == []
    else:
        assert any(text.startswith(broken.reasons) for text in problems), problems


def test_pushes_during_the_check_are_no_problem_of_a_release(
    site: Site, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "CA", None)
    before = truth(site)
    site.commit("team/project", "three.txt")
    with served(site, "", "pushed_app", wait_for) as url:
        host = probe.Asked(url)
        assert probe.content(host, before, host) == []
        # A host without the push that the primary had already.
        ahead = [{**before[0], "heads": ["1" * 40]}]
        (wrong,) = probe.content(host, ahead)
        assert wrong.startswith("team/project: heads ")
    assert host.errors == []

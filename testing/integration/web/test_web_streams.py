"""Data streams over HTTP: a clone or pull ends at its limits, and no other request notices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.web.app import Application
from hgfleet.web.rendering import stream_limits
from hgfleet.web.requests.responses import BrokenOffError
from testing.integration.web.support import HGRC, PROJECT, Site, ask, copied, environ_of, last
from testing.integration.web.test_web_bounds import running
from testing.integration.web.test_web_clients import Client, client, gunicorn
from testing.integration.web.test_web_failed_renderers import idle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

__all__ = ["client"]
"""A fixture."""

GETBUNDLE = {"X-HgArg-1": "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D01%252C02&cg=1"}
LARGE = "team/large"
MEMORY = 48 * 2**20
"""Enough for a clone of a small repository, and not for a file of `SIZE` bytes."""
SIZE = 64 * 2**20


@pytest.fixture(scope="module")
def large(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with a repository whose answer has some bytes before a file of many."""
    site = copied(template, tmp_path_factory.mktemp("large"))
    site.create(LARGE)
    for name in ("a", "b", "c", "d"):
        site.commit(LARGE, name, os.urandom(1_000_000).hex())
    site.commit(LARGE, "e", "\0" * SIZE)
    return site


def bounded(site: Site, **limits: float) -> Application:
    """Return an application with these limits."""
    return Application(replace(site.settings, **limits))  # type: ignore[arg-type]  # numbers all


def processes(web: Application) -> list[int]:
    """Return the renderers that have not ended."""
    return running(web._rendering._renderers._pid)


@contextlib.contextmanager
def served(site: Site, wait_for: WaitFor, **limits: object) -> Iterator[str]:
    names = {f"HGFLEET_WEB_STREAM_{name.upper()}": str(value) for name, value in limits.items()}
    with gunicorn(replace(site, environment={**site.environment, **names}), wait_for) as url:
        yield url


def test_a_clone_above_its_memory_reads_why_and_the_others_go_on(
    large: Site, client: Client, wait_for: WaitFor, capfd: pytest.CaptureFixture[str]
) -> None:
    with served(large, wait_for, memory_bytes=MEMORY) as url:
        said = client.hg("clone", "-q", f"{url}/{LARGE}", "refused", code=255)
        assert f"more than 3600 s of processor time, {MEMORY >> 20} MiB of memory" in said
        assert "take fewer changesets at a time" in said
        assert not (client.folder / "refused").exists()
        client.hg("clone", "-q", f"{url}{PROJECT}", "whole")
        assert client.hg("clone", "-q", "-r", "1", f"{url}/{LARGE}", "part") == ""
    (line,) = (line for line in large.log() if "refused" in line)
    assert (line["refused"], line["aborted"]) == ("limit (memory)", True)
    said = capfd.readouterr().err
    (event,) = map(json.loads, said.splitlines())
    assert event == {
        "event": "stream",
        "id": line["id"],
        "message": "the request passed its budget (memory)",
    }


def test_a_stream_above_its_processor_time_has_the_reason_in_it(large: Site) -> None:
    web = bounded(large, stream_cpu_seconds=0.1)
    body, _ = taken(web, LARGE)
    assert b"more than 0.1 s of processor time" in body
    assert last(large)["refused"] == "limit (processor time)"
    assert last(large)["aborted"] is True
    assert idle(web) == []
    assert taken(web, "team/project")[1] == "whole"


def test_the_kernel_ends_a_stream_that_says_nothing(
    large: Site, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    """A client that reads nothing, and code that looks at no limit."""
    monkeypatch.setattr(stream_limits, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(stream_limits.Stream, "reached", lambda _: "")
    web = bounded(large, stream_seconds=1.0)
    stream: Any = web(environ_of(f"/{LARGE}", "cmd=getbundle", headers=GETBUNDLE), started)
    next(stream)
    assert len(processes(web)) == 1
    wait_for("the kernel ends it", lambda: processes(web) == [])
    with pytest.raises(BrokenOffError):
        b"".join(stream)
    stream.close()
    assert str(last(large)["refused"]).startswith("limit")


def test_a_health_check_frees_the_thread_of_a_client_that_reads_nothing(large: Site) -> None:
    web = bounded(large)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        environ = environ_of(f"/{LARGE}", "cmd=getbundle", headers=GETBUNDLE)
        environ["gunicorn.socket"] = ours
        stream: Any = web(environ, started)
        assert ask(web, "/healthz").status == 200
        (lease,) = web._rendering._renderers._streams
        lease.end = 0.0
        assert ask(web, "/healthz").status == 200
        # gunicorn does this in a thread that sends.
        with pytest.raises(OSError, match="Broken pipe"):
            ours.sendall(b"a piece")
        stream.close()
    assert web._rendering._renderers._streams == set()


def test_a_stream_whose_client_left_ends_even_where_it_looks_at_nothing(
    large: Site, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    web = bounded(large)
    stream: Any = web(environ_of(f"/{LARGE}", "cmd=getbundle", headers=GETBUNDLE), started)
    next(stream)
    (process,) = processes(web)
    os.kill(process, signal.SIGSTOP)
    stream.close()
    assert last(large)["aborted"] is True
    monkeypatch.setattr("hgfleet.web.rendering.renderer_pool.LEAVING_SECONDS", 0.0)
    assert processes(web) == [process]
    assert ask(web, "/healthz").status == 200
    wait_for("it is killed", lambda: processes(web) == [])


def test_clients_that_leave_again_and_again_have_few_processes(
    large: Site, wait_for: WaitFor
) -> None:
    web = bounded(large)
    most = web._rendering._renderers._most
    stopped: list[int] = []
    for number in range(1, most + 3):
        stream: Any = web(environ_of(f"/{LARGE}", "cmd=getbundle", headers=GETBUNDLE), started)
        next(stream)
        (process,) = set(processes(web)) - set(stopped)
        # It computes something that takes long.
        os.kill(process, signal.SIGSTOP)
        stopped.append(process)
        stream.close()
        left = min(number, most)
        wait_for("the oldest is killed", lambda left=left: len(processes(web)) == left)
    assert processes(web) == stopped[-most:]
    for process in processes(web):
        os.kill(process, signal.SIGKILL)


def test_a_host_without_room_for_another_process_refuses_and_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, worker = os.fork, os.getpid()
    full, said = site.folder / "full", site.folder / "said"

    def limited() -> int:
        if os.getpid() != worker and full.exists():
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    # The fork server has no captured standard error.
    monkeypatch.setattr(
        "hgfleet.web.rendering.fork_server.report", lambda *words: said.write_text(words[1])
    )
    web = site.application()
    full.touch()
    assert ask(web, PROJECT, "cmd=getbundle", headers=GETBUNDLE).status == 503
    assert ask(web, "/healthz").status == 200
    full.unlink()
    assert taken(web, "team/project")[1] == "whole"
    assert said.read_text().startswith("no process for another renderer: Resource")


def test_a_clone_of_a_corrupt_repository_reads_where_the_reason_is(
    site: Site, client: Client, wait_for: WaitFor, capfd: pytest.CaptureFixture[str]
) -> None:
    site.commit("team/project", "large", os.urandom(1_000_000).hex())
    site.commit("team/project", "rotten", os.urandom(1_000).hex())
    store = site.path("team/project") / ".hg/store/data/rotten.i"
    data = bytearray(store.read_bytes())
    data[-100:] = bytes(100)
    store.write_bytes(data)
    with served(site, wait_for) as url:
        said = client.hg("clone", "-q", f"{url}{PROJECT}", "refused", code=255)
    (event,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert (event["event"], event["id"]) == ("stream", site.log()[-1]["id"])
    assert f"its operators find the reason as {event['id']}" in said
    assert "Error: " in event["message"]


def test_a_stream_is_made_outside_of_the_worker_and_a_whole_one_leaves_its_renderer(
    site: Site,
) -> None:
    web = site.application()
    assert taken(web, "team/project")[1] == "whole"
    assert not any(web._repositories._idle.values()), "the worker has opened no repository"
    (before,) = idle(web)
    assert taken(web, "team/project")[1] == "whole"
    assert idle(web) == [before]


def test_a_renderer_keeps_nothing_of_a_stream_that_it_has_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It looks whether a session may go on before each command, also of the next request.
    extension = Path(__file__).resolve().parents[3] / "hgext/session_rights.py"
    hgrc = site.folder / "server.rc"
    hgrc.write_text(f"{HGRC}[extensions]\nsession_rights = {extension}\n")
    monkeypatch.setenv("HGRCPATH", str(hgrc))
    web = site.application()
    assert taken(web, "team/project")[1] == "whole"
    before = idle(web)
    reply = ask(web, PROJECT, "cmd=lookup", headers={"X-HgArg-1": "key=tip"})
    assert (reply.status, reply.body[:2]) == (200, b"1 ")
    assert idle(web) == before


def taken(web: Application, path: str) -> tuple[bytes, str]:
    """Take an answer, uncompressed; return it, and how it ended."""
    stream: Any = web(environ_of(f"/{path}", "cmd=getbundle", headers=GETBUNDLE), started)
    body = b""
    unpack = zlib.decompressobj().decompress
    try:
        for piece in stream:
            body += unpack(piece)
    except BrokenOffError:
        return body, "broken off"
    finally:
        if hasattr(stream, "close"):
            stream.close()
    return body, "whole"


def started(*_: object) -> None:
    """Take the beginning of an answer."""

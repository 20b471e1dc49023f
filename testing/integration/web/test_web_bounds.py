"""Bounds of a request: processor time, memory, slots, and health checks in all that."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.web.app import Application
from hgfleet.web.rendering.budgets import Kind
from hgfleet.web.requests.request import LARGEST_BODY
from testing.integration.web.support import PROJECT, Reply, Site, ask, environ_of, last
from testing.integration.web.test_web_clients import gunicorn_master

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

DEAR = f"{PROJECT}/annotate/tip/long.txt"
LINES = 100_000
"""Annotating so many lines takes seconds on any machine."""
OTHER_ADDRESS = {"X-Real-IP": "198.51.100.9"}


@pytest.fixture(scope="module")
def large(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with a file of many lines and a file of many bytes."""
    folder = tmp_path_factory.mktemp("large")
    subprocess.run(["cp", "-a", f"{template.folder}/.", str(folder)], check=True)
    site = replace(template, folder=folder)
    site.commit("team/project", "long.txt", "line\n" * LINES)
    site.commit("team/project", "huge.bin", "\0" * 64 * 2**20)
    return site


def bounded(site: Site, **limits: float) -> Application:
    """Return an application with these limits."""
    return Application(replace(site.settings, **limits))  # type: ignore[arg-type]  # numbers all


def test_a_page_above_its_processor_time_is_refused_with_the_way_out(large: Site) -> None:
    web = bounded(large, request_cpu_seconds=0.3)
    reply = ask(web, DEAR)
    assert reply.status == 503
    assert "more than 0.3 s of processor time" in reply.text
    assert "https://hg.example.org/team/project/raw-file/tip/long.txt" in reply.text
    assert str(last(large)["refused"]).startswith("limit")
    assert last(large)["cpu"] == 0.3
    assert ask(web, f"{PROJECT}/raw-file/tip/one.txt").text == "content\n"
    # The renderer's time for this request, and not the time since its start.
    assert 0 < last(large)["cpu"] < 0.3


def test_a_page_above_its_memory_is_refused_and_the_rest_goes_on(large: Site) -> None:
    web = bounded(large, request_cpu_seconds=30, request_memory_bytes=32 * 2**20)
    for page in ("raw-file/tip/huge.bin", "annotate/tip/huge.bin", "rev/tip"):
        reply = ask(web, f"{PROJECT}/{page}")
        assert (page, reply.status) == (page, 503)
        assert "32 MiB of memory" in reply.text
    assert ask(web, f"{PROJECT}/raw-file/tip/one.txt").text == "content\n"


def test_an_archive_above_its_budget_never_ends_as_if_it_were_complete(large: Site) -> None:
    web = bounded(large, archive_cpu_seconds=30, request_memory_bytes=32 * 2**20)
    reply = None
    with contextlib.suppress(Exception):
        reply = ask(web, f"{PROJECT}/archive/tip.tar.gz")
    assert reply is None or reply.status == 503


def test_a_page_within_its_budget_is_complete(large: Site) -> None:
    web = bounded(large, request_cpu_seconds=600, request_memory_bytes=2 * 2**30)
    assert ask(web, f"{PROJECT}/annotate/0/one.txt").status == 200
    assert len(ask(web, f"{PROJECT}/raw-file/tip/huge.bin").body) == 64 * 2**20
    assert ask(web, f"{PROJECT}/raw-file/tip/long.txt").body == b"line\n" * LINES


def test_a_renderer_that_ended_while_it_was_idle_costs_no_request(site: Site) -> None:
    web = site.application()
    assert ask(web, f"{PROJECT}/log/0").status == 200
    (idle,) = web._rendering._renderers._idle
    web._rendering._renderers._control.send(f"K{idle.pid}".encode())
    assert idle.channel.recv(1) == b"", "the renderer has ended"
    assert ask(web, f"{PROJECT}/log/1").status == 200


def test_an_idle_renderer_ends_and_frees_the_repositories_that_it_has_open(
    site: Site, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    web = site.application()
    assert ask(web, f"{PROJECT}/log/0").status == 200
    (idle,) = web._rendering._renderers._idle
    assert ask(web, "/healthz").status == 200
    assert web._rendering._renderers._idle == [idle]
    monkeypatch.setattr("hgfleet.web.rendering.renderer_pool.IDLE_SECONDS", 0.0)
    assert ask(web, "/healthz").status == 200
    assert web._rendering._renderers._idle == []
    server = web._rendering._renderers._pid
    wait_for("its files are closed", lambda: not running(server))
    assert ask(web, f"{PROJECT}/log/1").status == 200


def test_an_address_above_its_share_is_told_and_another_one_gets_its_page(site: Site) -> None:
    web = site.application()
    slots = web._rendering._slots
    shares = [slots.enter("192.0.2.7", Kind.DEAR) for _ in range(1 + site.settings.waiting // 2)]
    reply = ask(web, f"{PROJECT}/rev/tip")
    assert (reply.status, reply.headers["Retry-After"]) == (429, "10")
    assert "the most that an address may have" in reply.text
    assert last(site)["refused"] == "share"
    assert ask(web, f"{PROJECT}/shortlog", headers=OTHER_ADDRESS).status == 200
    for place in shares:
        slots.leave(place)
    assert ask(web, f"{PROJECT}/rev/tip").status == 200


def test_a_request_that_waited_is_let_in_by_the_registry_of_now(
    site: Site, wait_for: WaitFor
) -> None:
    web = site.application()
    slots = web._rendering._slots
    # Requests of the wire protocol may have all slots.
    held = [slots.enter(f"192.0.2.{n}", Kind.WIRE) for n in range(site.settings.renderers)]
    assert all(place.granted.is_set() for place in held)
    replies: list[Reply] = []
    waiting = threading.Thread(target=lambda: replies.append(ask(web, f"{PROJECT}/shortlog")))
    waiting.start()
    wait_for("the request waits", lambda: slots.load()["waiting"] == 1)
    site.private.append(site.public.pop(site.public.index(PROJECT[1:])))
    site.write_registry()
    for place in held:
        slots.leave(place)
    waiting.join()
    assert [reply.status for reply in replies] == [404], replies[0].text
    assert slots.load()["running"] == 0


GETBUNDLE = {"X-HgArg-1": "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D01%252C02&cg=1"}


def test_an_address_has_so_many_streams_at_a_time_and_another_one_its_own(site: Site) -> None:
    # More than is held back until the answer is whole.
    site.commit("team/project", "large", os.urandom(1_000_000).hex())
    web = bounded(site, streams=2)
    environ = environ_of(PROJECT, "cmd=getbundle", headers=GETBUNDLE)
    # The client of these reads nothing yet.
    held = [web(dict(environ), lambda *_: None) for _ in range(2)]
    refused = ask(web, PROJECT, "cmd=getbundle", headers=GETBUNDLE)
    assert (refused.status, refused.headers["Content-Type"]) == (200, "application/hg-error")
    assert "2 clones and pulls of your address are under way" in refused.text
    assert last(site)["refused"] == "share"
    assert ask(web, PROJECT, "cmd=heads").status == 200
    other = ask(web, PROJECT, "cmd=getbundle", headers=GETBUNDLE | OTHER_ADDRESS)
    assert other.headers["Content-Type"] == "application/mercurial-0.1"
    # The first stream ends, the client of the second disconnects.
    assert b"".join(held[0])
    held[0].close()  # type: ignore[attr-defined]  # a stream
    held[1].close()  # type: ignore[attr-defined]  # a stream
    again = [ask(web, PROJECT, "cmd=getbundle", headers=GETBUNDLE) for _ in range(3)]
    assert [reply.headers["Content-Type"] for reply in again] == ["application/mercurial-0.1"] * 3


def test_a_stream_that_fails_gives_its_place_back(site: Site) -> None:
    web = bounded(site, streams=1)
    unknown = {"X-HgArg-1": GETBUNDLE["X-HgArg-1"] + "&heads=" + "1" * 40}
    for _ in range(3):
        assert "under way" not in ask(web, PROJECT, "cmd=getbundle", headers=unknown).text
    reply = ask(web, PROJECT, "cmd=getbundle", headers=GETBUNDLE)
    assert reply.headers["Content-Type"] == "application/mercurial-0.1"


def test_a_wire_command_with_many_arguments_runs_under_the_deadline(site: Site) -> None:
    web = site.application()

    def known(nodes: list[str]) -> Reply:
        body = f"nodes={'+'.join(nodes)}".encode()
        more = {"X-HgArgs-Post": str(len(body))}
        return ask(web, PROJECT, "cmd=known", method="POST", headers=more, body=body)

    tip = site.hg("team/project", "log", "-r", "tip", "-T", "{node}")
    assert known([tip, "1" * 40] * 100).text == "10" * 100
    assert web._rendering._renderers._idle == [], "the worker answered itself"
    # The largest body: 4 MiB.
    most = [tip, "1" * 40] * (LARGEST_BODY // 41 // 2 - 1)
    assert known(most).text == "10" * (len(most) // 2)
    assert len(web._rendering._renderers._idle) == 1, "a renderer answered"


@pytest.mark.parametrize("count", ["20000", "%2B20000", "20_000", "%2020000", "5001"])
def test_a_page_has_at_most_so_many_changesets_however_the_number_is_written(
    site: Site, count: str
) -> None:
    web = site.application()
    reply = ask(web, f"{PROJECT}/log", f"revcount={count}")
    assert reply.status == 200
    # The page links to a page of twice its number.
    assert "revcount=10000" in reply.text


@dataclass
class Service:
    """gunicorn with the hooks of production."""

    port: int
    health_socket: Path
    log: Path
    number: Path

    @property
    def master(self) -> int:
        """Return the process id of gunicorn's master."""
        return int(self.number.read_text())

    def get(self, path: str, address: str = "192.0.2.7") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"X-Real-IP": address})
            response = connection.getresponse()
            return response.status, response.read()

    def unread(self, client: socket.socket) -> int:
        """Return the bytes of a client's request that the service has not read."""
        ports = f":{self.port:04X}", f":{client.getsockname()[1]:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if (local[-5:], remote[-5:]) == ports:
                return int(queues.partition(":")[2], 16)
        raise AssertionError("the service has no such connection")

    def health(self) -> tuple[int, dict[str, object]]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.health_socket))
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            response = http.client.HTTPResponse(connection)
            response.begin()
            return response.status, json.loads(response.read())


@pytest.fixture
def request_cpu_seconds() -> float:
    """The budget of a request, which some tests change."""
    return 0.5


@pytest.fixture
def service(
    large: Site, tmp_path: Path, wait_for: WaitFor, request_cpu_seconds: float
) -> Iterator[Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configuration = tmp_path / "gunicorn.py"
    configuration.write_text(
        "from hgfleet.web.server_hooks import on_starting, post_worker_init, pre_fork\n"
        f"bind = '127.0.0.1:{port}'\nworker_class = 'gthread'\nworkers = 1\nthreads = 8\n"
        "control_socket_disable = True\nloglevel = 'warning'\n"
    )
    environment = {
        **large.environment,
        "PYTHONPATH": ":".join(sys.path),
        "HGFLEET_WEB_REGISTRY": str(large.settings.registry),
        "HGFLEET_WEB_ROOT": str(large.settings.root),
        "HGFLEET_WEB_ACCESS_LOG": str(tmp_path / "access.log"),
        "HGFLEET_WEB_HEALTH_SOCKET": str(tmp_path / "health.socket"),
        "HGFLEET_WEB_RENDERERS": "4",
        "HGFLEET_WEB_WAITING": "4",
        "HGFLEET_WEB_REQUEST_CPU_SECONDS": str(request_cpu_seconds),
    }
    number = tmp_path / "gunicorn.pid"
    with gunicorn_master(number, environment, "--config", str(configuration)):
        made = Service(port, tmp_path / "health.socket", tmp_path / "access.log", number)
        wait_for("the service is healthy", lambda: made.health()[0] == 200)
        yield made


def test_an_overload_by_one_address_leaves_health_and_pages_to_others(service: Service) -> None:
    seen: list[int] = []

    def read() -> None:
        seen.append(service.get(DEAR)[0])

    readers = [threading.Thread(target=read) for _ in range(24)]
    for reader in readers:
        reader.start()
    during = 0
    while any(reader.is_alive() for reader in readers):
        status, document = service.health()
        assert status == 200, document
        assert service.get(f"{PROJECT}/shortlog", "198.51.100.9")[0] == 200
        during += 1
    for reader in readers:
        reader.join()
    assert during > 0
    # Each is above its budget, or above the share of its address.
    assert set(seen) == {429, 503}


def test_health_answers_while_every_thread_is_busy(service: Service, wait_for: WaitFor) -> None:
    """Eight clients begin a request and do not end it."""
    begun = (
        f"POST {PROJECT}?cmd=known HTTP/1.1\r\nHost: x\r\nX-HgArgs-Post: 6\r\n"
        "Content-Length: 6\r\n\r\n"
    )
    with contextlib.ExitStack() as stack:

        def connect(request: str) -> socket.socket:
            made = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 60))
            made.sendall(request.encode())
            return made

        held = [connect(begun) for _ in range(8)]
        # A thread reads the beginning of a request and then waits for its end.
        wait_for("each has a thread", lambda: not any(map(service.unread, held)))
        ninth = connect(f"GET {PROJECT}?cmd=heads HTTP/1.0\r\n\r\n")
        wait_for("its request has arrived", lambda: service.unread(ninth) > 0)
        assert service.health()[0] == 200
        assert service.unread(ninth) > 0, "no thread is free"
        held[0].sendall(b"nodes=")
        assert ninth.recv(12) == b"HTTP/1.0 200"


def running(process: int) -> list[int]:
    """The children of a process that have not ended; its parent may not have noticed yet."""
    alive = []
    for child in children(process):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            alive += [child] if state != "Z" else []
    return alive


def children(process: int) -> list[int]:
    return [
        int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def test_a_worker_that_can_start_no_renderer_is_replaced(
    service: Service, wait_for: WaitFor
) -> None:
    (worker,) = children(service.master)
    (server,) = children(worker)
    os.kill(server, signal.SIGKILL)

    def is_replaced() -> bool:
        return service.health()[0] == 200 and worker not in children(service.master)

    wait_for("another worker answers", is_replaced)
    assert service.get(f"{PROJECT}/shortlog")[0] == 200


@pytest.mark.parametrize("request_cpu_seconds", [600])
def test_a_client_that_disconnects_frees_its_slot(service: Service, wait_for: WaitFor) -> None:
    """The budget is so large that only the disconnection ends the requests."""

    def reasons() -> list[object]:
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
        return [line.get("refused") for line in lines if line.get("command") == "annotate"]

    for _ in range(2):
        leaving = socket.create_connection(("127.0.0.1", service.port))
        leaving.sendall(f"GET {DEAR} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        leaving.close()
    expected = ["limit (the client disconnected)"] * 2
    wait_for("both requests are ended", lambda: reasons() == expected)
    wait_for("both slots are free", lambda: service.health()[1]["load"]["running"] == 0)  # type: ignore[index]  # a document
    assert service.get(f"{PROJECT}/shortlog")[0] == 200

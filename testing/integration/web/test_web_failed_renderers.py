"""A renderer that failed a request answers no other, and nothing of a request outlives it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import tarfile
import threading
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.principal import Principal
from hgfleet.registry.model.registry import Repository
from hgfleet.web.app import Application
from hgfleet.web.engine import frames
from hgfleet.web.rendering.budgets import Budget
from hgfleet.web.rendering.lease import Process, Terms
from hgfleet.web.requests.responses import BrokenOffError
from testing.bench import hostile_others
from testing.bench.hostile_others import Target
from testing.integration.web import hostile_archives
from testing.integration.web.support import PROJECT, Site, ask, copied, environ_of, last
from testing.integration.web.test_web_bounds import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

SECRET = "/team/secret"
NAME = {"Authorization": "somebody"}
"""The header of a reader of private repositories."""

ARCHIVES = 12
PAGES = 60
"""Reduced from 100 and 1,000, which `testing/bench/hostile.py --phase failing` sends."""


Hostile = tuple[Site, dict[str, str]]
"""A site, and the changesets whose archives fail, by the way in which they do."""


@pytest.fixture(scope="module")
def hostile(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A site with a repository whose archives fail in each way."""
    site = copied(template, tmp_path_factory.mktemp("failing"))
    site.commit("team/secret", "name-of-a-secret.txt")
    nodes = hostile_archives.make(site)
    return site, nodes


def application(site: Site) -> Application:
    """An application with little memory for a request, where NAME is a reader of the secret."""
    settings = replace(
        site.settings, request_memory_bytes=hostile_archives.MEMORY, waiting=64, renderers=4
    )
    web = Application(settings)
    staff = Principal("alice", frozenset({"staff"}))
    web._sign_in.principal = (  # type: ignore[method-assign]  # a reader without a daemon
        lambda exchange: staff if "HTTP_AUTHORIZATION" in exchange.environ else None
    )
    return web


def test_failed_archives_leave_nothing_in_answers_of_others(hostile: Hostile) -> None:
    site, nodes = hostile
    webs = [application(site)]

    def fetch(target: Target, query: str) -> hostile_others.Reply:
        given = NAME if target.is_private else {}
        address = {"X-Real-IP": "198.51.100.9"}
        reply = ask(webs[0], target.path, query, headers=given | address)
        return hostile_others.Reply.of(reply.status, reply.body)

    others = hostile_others.Others(
        fetch,
        archives=[
            Target(f"{PROJECT}/archive/tip.zip"),
            Target(f"{PROJECT}/archive/tip.tar.gz"),
            Target(f"{SECRET}/archive/tip.zip", is_private=True),
        ],
        pages=[
            Target(f"{PROJECT}/raw-file/tip/one.txt"),
            Target(f"{SECRET}/json-log", is_private=True),
        ],
    )
    others.learn()
    # Where no renderer has answered anything yet.
    webs[0] = application(site)

    def hostile_client(suffix: str) -> None:
        for number in range(ARCHIVES):
            hostile_archives.fail(webs[0], nodes, suffix, number)

    clients = [threading.Thread(target=hostile_client, args=(kind,)) for kind in ("zip", "tar.gz")]
    for client in clients:
        client.start()
    others.run(ARCHIVES, PAGES)
    for client in clients:
        client.join()
    assert others.wrong == []


def idle(web: Application) -> list[int]:
    """Return the processes that wait for a request."""
    return [process.pid for process in web._rendering._renderers._idle]


@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
@pytest.mark.parametrize(
    ("way", "status", "says"),
    [
        ("rot", 500, "find the reason as"),
        ("rot after the first byte", None, ""),
        ("censored", 403, "The content of 'censored' was removed"),
        ("censored behind a large", 403, "The content of 'censored-too' was removed"),
        ("missing behind a large", 500, "find the reason as"),
        ("oversized", 403, "The file 'oversized' has 68157440 bytes, more than the memory"),
        ("memory", None, ""),
    ],
)
def test_an_archive_that_fails_is_refused_or_breaks_off_and_ends_its_renderer(
    hostile: Hostile,
    capfd: pytest.CaptureFixture[str],
    way: str,
    status: int | None,
    says: str,
    suffix: str,
) -> None:
    site, nodes = hostile
    web = application(site)
    assert ask(web, f"{PROJECT}/archive/tip.zip").status == 200
    (before,) = idle(web)
    path = f"{hostile_archives.HOSTILE}/archive/{nodes[way]}.{suffix}"
    if status is None:
        # gunicorn ends the connection after such an exception, and writes nothing.
        with pytest.raises(BrokenOffError):
            ask(web, path)
        assert last(site)["aborted"] is True
    else:
        reply = ask(web, path)
        assert reply.status == status
        assert says in reply.text
    assert idle(web) == []
    assert ask(web, f"{PROJECT}/archive/tip.zip").status == 200
    assert before not in idle(web)
    said = capfd.readouterr().err
    assert "Traceback" not in said
    events = [json.loads(line)["event"] for line in said.splitlines()]
    assert events == {500: ["error"], 403: [], None: ["stream"]}[status]


@pytest.mark.parametrize("seconds", hostile_archives.TIMES)
def test_a_changeset_of_any_time_has_archives(site: Site, seconds: int) -> None:
    node = hostile_archives.commit(site, "team/project", "dated", seconds)
    web = site.application()
    packed = ask(web, f"{PROJECT}/archive/{node}.zip")
    assert packed.status == 200
    with zipfile.ZipFile(io.BytesIO(packed.body)) as archive:
        assert archive.testzip() is None
        years = {member.date_time[0] for member in archive.infolist()}
    assert years == ({2038} if seconds > 0 else {1980})
    packed = ask(web, f"{PROJECT}/archive/{node}.tar.gz")
    assert packed.status == 200
    with tarfile.open(fileobj=io.BytesIO(packed.body)) as members:
        # The members have the time itself.
        assert {int(member.mtime) for member in members} == {seconds}


def test_a_client_that_leaves_an_archive_ends_its_renderer(
    hostile: Hostile, capfd: pytest.CaptureFixture[str]
) -> None:
    site, nodes = hostile
    web = application(site)
    path = f"{hostile_archives.HOSTILE}/archive/{nodes['client gone']}.zip"
    assert ask(web, path).status == 200
    (before,) = idle(web)
    hostile_archives.leave(web, path)
    assert idle(web) == []
    assert json.loads(capfd.readouterr().err)["message"] == "client disconnected"
    assert last(site)["aborted"] is True
    assert ask(web, path).status == 200
    assert before not in idle(web)


@pytest.mark.parametrize("path", ["rev/nosuch", "raw-file/tip/nosuch", "log/0/nosuch"])
def test_an_error_that_hgweb_makes_a_page_of_ends_the_renderer(site: Site, path: str) -> None:
    web = site.application()
    assert ask(web, f"{PROJECT}/log/0").status == 200
    (before,) = idle(web)
    assert ask(web, f"{PROJECT}/log/1").status == 200
    assert idle(web) == [before], "a whole answer is followed by another"
    assert ask(web, f"{PROJECT}/{path}").status == 404
    assert idle(web) == []


def test_arguments_that_make_no_sense_end_the_renderer(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    web = site.application()
    assert ask(web, f"{PROJECT}/log/0", "linerange=zz").status in (200, 400)
    assert ask(web, f"{PROJECT}/comparison/tip/one.txt", "context=zz").status == 400
    assert idle(web) == []
    assert "Traceback" not in capfd.readouterr().err


def test_a_renderer_answers_the_readers_of_its_first_repository_alone(site: Site) -> None:
    site.create("team/other", public=False)
    site.create("team/open")
    web = application(site)

    def process_of(path: str) -> int:
        before = set(idle(web))
        assert ask(web, path, headers=NAME).status == 200
        used = web._rendering._renderers._idle[-1].pid
        assert set(idle(web)) >= before - {used}
        return used

    private = process_of(f"{SECRET}/json-log")
    public = process_of(f"{PROJECT}/log/0")
    assert public != private
    # Repositories of the same readers share a process, and so do public repositories.
    assert process_of("/team/other/json-log") == private
    assert process_of("/team/open/json-log") == public
    assert process_of(f"{SECRET}/json-branches") == private
    assert process_of(f"{PROJECT}/log/1") == public


def test_the_readers_of_a_repository_that_changed_get_another_renderer(site: Site) -> None:
    web = application(site)
    assert ask(web, f"{SECRET}/json-log", headers=NAME).status == 200
    (private,) = idle(web)
    site.private.remove("team/secret")
    site.public.append("team/secret")
    site.write_registry()
    assert ask(web, f"{SECRET}/json-log").status == 200
    assert len(idle(web)) == 2
    assert idle(web)[0] == private


def test_there_are_as_many_renderers_as_there_are_slots_whoever_their_readers_are(
    site: Site,
) -> None:
    groups = [
        Repository("team/secret", "", (f"group{number}",), (), publishing=True, bundles=())
        for number in range(6)
    ]
    web = application(site)
    pool = web._rendering._renderers
    terms = Terms(Budget(1.0, 1))
    for group in groups:
        lease = pool.lend(group, terms)
        lease._is_done = True
        lease.hand_back()
    assert [process.readers for process in pool._idle] == [
        (frozenset(group.read), None) for group in groups[2:]
    ]
    held = [pool.lend(group, terms) for group in groups]
    assert pool._idle == [], "a request under way has room"
    for lease in held:
        lease.hand_back()
    assert (pool._idle, pool._lent) == ([], 0)


HEAD = json.dumps({"status": "200 OK", "headers": [["Content-Type", "text/plain"]]}).encode()
END = json.dumps({"ends": False, "cpu": 0.0}).encode()
WRONG = {
    "another number": [(frames.HEAD, 1, HEAD)],
    "the number of the next": [(frames.HEAD, 0, HEAD), (frames.END, -1, END)],
    "bytes before a head": [(frames.WRITTEN, 0, b"PK\x05\x06")],
    "bytes as a head": [(frames.HEAD, 0, b"PK\x05\x06")],
    "two heads": [(frames.HEAD, 0, HEAD), (frames.HEAD, 0, HEAD)],
    "a status that is none": [(frames.HEAD, 0, b'{"status": "OK", "headers": []}')],
    "bytes as an end": [(frames.HEAD, 0, HEAD), (frames.END, 0, b"PK\x05\x06")],
    "a failure without a kind": [(frames.HEAD, 0, HEAD), (frames.FAILURE, 0, END)],
    "an unknown kind": [(b"?", 0, b"")],
}


@contextlib.contextmanager
def impostor(web: Application, sent: list[tuple[bytes, int, bytes]]) -> Iterator[Process]:
    """Put a renderer into the pool that answers with these frames, numbered from the request's."""
    ours, theirs = socket.socketpair()
    process = Process(ours, os.getpid(), "public", "team/project")

    def answer() -> None:
        with contextlib.suppress(frames.ClosedError, OSError):
            _, number, _ = frames.receive(theirs)
            for kind, more, payload in sent:
                frames.send(theirs, kind, number + more, payload)

    thread = threading.Thread(target=answer)
    thread.start()
    web._rendering._renderers._idle.append(process)
    with ours, theirs:
        yield process
        ours.close()
        thread.join()


@pytest.mark.parametrize("sent", WRONG.values(), ids=WRONG)
def test_a_frame_that_has_no_place_there_is_a_broken_channel_and_never_the_clients_fault(
    site: Site, capfd: pytest.CaptureFixture[str], sent: list[tuple[bytes, int, bytes]]
) -> None:
    web = site.application()
    with impostor(web, sent) as process:
        reply = ask(web, f"{PROJECT}/log/0")
        assert process.channel.fileno() == -1, "its channel is closed"
    assert reply.status == 500
    event, *others = map(json.loads, capfd.readouterr().err.splitlines())
    assert (event["event"], others) == ("error", [])
    assert event["id"] in reply.text
    assert event["message"].startswith("got ")
    assert (idle(web), web._rendering._renderers._lent) == ([], 0)
    assert ask(web, f"{PROJECT}/log/0").status == 200


def test_an_idle_renderer_that_sends_something_costs_no_request(site: Site) -> None:
    web = site.application()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, frames.WRITTEN, 1, b"the end of a zip archive")
        pool: Any = web._rendering._renderers
        pool._idle.append(Process(ours, os.getpid(), "public", "team/project"))
        assert ask(web, f"{PROJECT}/log/0").status == 200
    assert os.getpid() not in idle(web)


def test_a_data_stream_that_breaks_off_ends_its_renderer(site: Site, wait_for: WaitFor) -> None:
    # More than a frame.
    site.commit("team/project", "large", os.urandom(1_000_000).hex())
    web = site.application()
    given = {"X-HgArg-1": "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D01%252C02&cg=1"}
    environ = environ_of(PROJECT, "cmd=getbundle", headers=given)
    whole: Any = web(dict(environ), lambda *_: None)
    assert b"".join(whole)
    whole.close()
    (before,) = idle(web)
    broken: Any = web(dict(environ), lambda *_: None)
    next(broken)
    broken.close()
    assert idle(web) == []
    wait_for("it has ended", lambda: before not in running(web._rendering._renderers._pid))

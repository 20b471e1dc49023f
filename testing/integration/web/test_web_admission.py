"""Clones that wait for their turn: a real hg over both protocols, with gunicorn as in production.

The tests hold the slots themselves, so each client waits for as long as they say.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.admission import queue
from testing.integration.support.site import HG
from testing.integration.web.support import HGRC, Site
from testing.integration.web.test_web_clients import gunicorn
from testing.support import pace, prefork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.conftest import WaitFor

ROOT = Path(__file__).resolve().parents[3]
REPOSITORY = "team/project"
WAITS = "remote: waiting for a slot: 1 clone is being served\n"
LIMITS = queue.Limits(slots=1, waiting=2, patience=60, hold=60)
PROTOCOLS = ("ssh", "http")


@dataclass
class Clone:
    """A running `hg clone` and its output so far."""

    process: subprocess.Popen[str]
    said: Path
    folder: Path

    def text(self) -> str:
        return self.said.read_text()

    def end(self) -> str:
        self.process.wait(60)
        return self.text()


@dataclass
class Served:
    """A site that serves one clone at a time."""

    site: Site
    url: str
    queue: Path
    work: Path
    running: list[Clone]

    def source(self, protocol: str) -> str:
        if protocol == "http":
            return f"{self.url}/{REPOSITORY}"
        return f"ssh://localhost/{self.site.path(REPOSITORY)}"

    def client(self, *arguments: str) -> list[str]:
        # ssh would run the command like this; the server has its own settings.
        there = (
            f"HGRCPATH={self.site.environment['HGRCPATH']} PYTHONPATH={ROOT} exec {self.program}"
        )
        (self.work / "ssh").write_text(f'#!/bin/sh\nshift\nset -- ${{1#hg}}\n{there} "$@"\n')
        (self.work / "ssh").chmod(0o755)
        return [self.program, "--config", f"ui.ssh={self.work / 'ssh'}", *arguments]

    @property
    def program(self) -> str:
        return str(prefork.shared(self.environment()).program)

    def environment(self) -> dict[str, str]:
        # As at a terminal: lines are written when they are there.
        ours = {"HGRCPATH": str(self.work / "hgrc"), "HGPLAIN": "1", "PYTHONUNBUFFERED": "1"}
        return {**self.site.environment, **ours}

    def clone(self, protocol: str, *options: str) -> Clone:
        folder = self.work / f"clone{len(self.running)}"
        return self.start(folder, "clone", *options, self.source(protocol), str(folder))

    def start(self, folder: Path, *arguments: str) -> Clone:
        said = self.work / f"said{len(self.running)}"
        with said.open("w") as file:
            process = subprocess.Popen(
                self.client(*arguments),
                cwd=folder if folder.exists() else self.work,
                env=self.environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )
        clone = Clone(process, said, folder)
        self.running.append(clone)
        return clone

    def hg(self, folder: Path, *arguments: str) -> str:
        return subprocess.run(
            self.client(*arguments),
            cwd=folder,
            env=self.environment(),
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def session(self, request: bytes) -> subprocess.Popen[bytes]:
        """Begin a session that asks for something and reads nothing of it.

        It is the real hg: tests look for its process id, and kill only this process.
        """
        process = subprocess.Popen(
            [str(HG), "-R", str(self.site.path(REPOSITORY)), "serve", "--stdio"],
            env={**self.site.environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.flush()
        return process

    def slot(self) -> queue.QueuePlace:
        turn = queue.enter(self.queue, LIMITS, "repo=test")
        assert turn.ask() is None
        return turn

    def waiting(self) -> int:
        return sum(path.suffix == ".waiting" for path in self.queue.iterdir())


@pytest.fixture
def more() -> dict[str, str]:
    """Settings of the server that a test changes."""
    return {}


@pytest.fixture
def served(
    site: Site,
    tmp_path_factory: pytest.TempPathFactory,
    wait_for: WaitFor,
    more: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Served]:
    queue, work = tmp_path_factory.mktemp("queue"), tmp_path_factory.mktemp("work")
    (work / "hgrc").write_text("")
    settings = {"slots": "1", "waiting": "2", "changesets": "2", **more}
    hgrc = work / "server.rc"
    hgrc.write_text(
        HGRC
        + f"[extensions]\nadmission = {ROOT / 'hgext/admission.py'}\n"
        + f"[hgfleet]\nadmission = {queue}\n"
        + "".join(f"admission-{name} = {value}\n" for name, value in settings.items())
    )
    monkeypatch.setenv("HGFLEET_WEB_CLONES", "2")
    environment = {**site.environment, "HGRCPATH": str(hgrc), "HGFLEET_WEB_CLONES": "2"}
    site = replace(site, environment=environment)
    site.write_registry()
    with gunicorn(site, wait_for) as url:
        made = Served(site, url, queue, work, [])
        try:
            yield made
        finally:
            for clone in made.running:
                with contextlib.suppress(ProcessLookupError):
                    clone.process.kill()
                clone.process.wait()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["pull", "stream"])
def test_a_clone_waits_for_its_turn_and_says_so(
    served: Served, protocol: str, options: tuple[str, ...], wait_for: WaitFor
) -> None:
    slot = served.slot()
    clone = served.clone(protocol, *options)
    wait_for("the client reads that it waits", lambda: WAITS in clone.text())
    assert clone.process.poll() is None
    slot.leave()
    assert clone.end().count("remote:") == 1
    assert clone.process.returncode == 0, clone.text()
    assert served.hg(clone.folder, "log", "-T", "{desc}\n") == "add two.txt\nadd one.txt\n"
    wait_for("the slot is free again", lambda: not any(served.queue.iterdir()))
    if protocol == "http":
        (answer,) = (line for line in served.site.log() if "waited" in line)
        assert 0 < answer["waited"] <= answer["duration"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pulls_and_pages_do_not_wait(served: Served, protocol: str, wait_for: WaitFor) -> None:
    clone = served.clone(protocol)
    assert "waiting" not in clone.end()
    served.site.commit(REPOSITORY, "three.txt")
    slots = served.slot()
    waiting = [served.clone("http"), served.clone("http")]
    wait_for("both wait", lambda: served.waiting() == 2)
    assert "1 changesets" in served.hg(clone.folder, "pull")
    page = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=10)
    page.request("GET", f"/{REPOSITORY}/log")
    assert b"add three.txt" in page.getresponse().read()
    slots.leave()
    for waiter in waiting:
        assert "3 changesets" in waiter.end()


@pytest.mark.parametrize("more", [{"changesets": "1000", "size": "100"}], ids=["small"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_has_the_beginning_waits_for_the_rest(
    served: Served, protocol: str, wait_for: WaitFor
) -> None:
    first = served.clone(protocol, "--rev", "0")
    first.end()
    served.site.commit(REPOSITORY, "large.txt", os.urandom(200).hex())
    slot = served.slot()
    pull = served.start(first.folder, "pull")
    wait_for("the client reads that it waits", lambda: WAITS in pull.text())
    slot.leave()
    assert "2 changesets" in pull.end()
    served.site.commit(REPOSITORY, "small.txt")
    slot = served.slot()
    assert "1 changesets" in served.start(first.folder, "pull").end()
    slot.leave()


def test_a_clone_that_waited_is_let_in_by_the_registry_of_now(
    served: Served, wait_for: WaitFor
) -> None:
    slot = served.slot()
    clone = served.clone("http")
    wait_for("the client reads that it waits", lambda: WAITS in clone.text())
    site = served.site
    site.private.append(site.public.pop(site.public.index(REPOSITORY)))
    site.write_registry()
    slot.leave()
    assert "there is no such repository here any more; nothing was sent" in clone.end()
    assert clone.process.returncode != 0
    wait_for("the slot is free again", lambda: not any(served.queue.iterdir()))


def test_an_old_stream_that_waited_is_let_in_by_the_registry_of_now(
    served: Served, wait_for: WaitFor
) -> None:
    slot = served.slot()
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=20)
    connection.request("GET", f"/{REPOSITORY}?cmd=stream_out")
    wait_for("it waits", lambda: served.waiting() == 1)
    site = served.site
    site.private.append(site.public.pop(site.public.index(REPOSITORY)))
    site.write_registry()
    slot.leave()
    answer = connection.getresponse()
    assert answer.status == http.HTTPStatus.OK
    assert answer.read() == b"there is no such repository here any more; nothing was sent\n"
    wait_for("the slot is free again", lambda: not any(served.queue.iterdir()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_too_many_is_refused(served: Served, protocol: str, wait_for: WaitFor) -> None:
    slot = served.slot()
    others = [queue.enter(served.queue, LIMITS, "") for _ in range(2)]
    clone = served.clone(protocol)
    said = clone.end()
    assert "1 clone is being served and 2 wait; try again in some minutes" in said
    assert "Traceback" not in said
    assert clone.process.returncode == 255
    assert not clone.folder.exists()
    others[0].leave()
    again = served.clone(protocol)
    wait_for("there is room to wait", lambda: "waiting for a slot" in again.text())
    others[1].leave()
    slot.leave()
    again.end()
    assert again.process.returncode == 0


def everything() -> bytes:
    """The request of a client that has nothing."""
    values = {b"bundlecaps": b"HG20,bundle2=HG20%0Achangegroup%3D01%2C02", b"cg": b"1"}
    pairs = b"".join(b"%s %d\n%s" % (name, len(value), value) for name, value in values.items())
    return b"getbundle\n* %d\n%s" % (len(values), pairs)


def has_slot(served: Served, process: subprocess.Popen[bytes]) -> bool:
    texts = [path.read_text() for path in served.queue.glob("*.served")]
    return any(f"pid={process.pid}\n" in line for line in texts)


@pytest.fixture
def large(served: Served) -> Served:
    """More than fits into a pipe, so that a session has to wait for its client."""
    path = served.site.path(REPOSITORY) / "large"
    path.write_bytes(os.urandom(1_000_000))
    served.site.hg(REPOSITORY, "commit", "-q", "-A", "-m", "large", "large")
    return served


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_next_goes_on_when_a_session_is_killed(
    large: Served, protocol: str, wait_for: WaitFor
) -> None:
    session = large.session(everything())
    wait_for("the session is served", lambda: has_slot(large, session))
    clone = large.clone(protocol)
    wait_for("the clone waits", lambda: WAITS in clone.text())
    session.kill()
    session.communicate()
    clone.end()
    assert clone.process.returncode == 0


@pytest.mark.parametrize("more", [{"hold": "1"}])
def test_a_slow_client_does_not_keep_its_slot_for_ever(large: Served, wait_for: WaitFor) -> None:
    session = large.session(everything())
    wait_for("the session is served", lambda: has_slot(large, session))
    clone = large.clone("ssh")
    clone.end()
    assert clone.process.returncode == 0
    # It gets all that it asked for nevertheless.
    assert session.stdin is not None
    session.stdin.close()
    assert session.stdout is not None
    assert len(session.stdout.read()) > 1_000_000
    session.kill()
    session.wait()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_goes_away_leaves_the_queue(
    served: Served, protocol: str, wait_for: WaitFor
) -> None:
    slot = served.slot()
    clone = served.clone(protocol)
    wait_for("the clone waits", lambda: WAITS in clone.text())
    clone.process.kill()
    wait_for("nobody waits", lambda: served.waiting() == 0, seconds=5)
    slot.leave()


def test_a_client_that_goes_away_while_it_is_served_gives_its_slot_back(
    large: Served, wait_for: WaitFor
) -> None:
    connection = http.client.HTTPConnection(large.url.removeprefix("http://"), timeout=10)
    arguments = "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D01%252C02&cg=1"
    headers = {"X-HgArg-1": arguments, "Accept": "application/mercurial-0.1"}
    # So much that neither the server's nor the client's side of the connection can hold it.
    path = large.site.path(REPOSITORY) / "huge"
    path.write_bytes(os.urandom(20_000_000))
    large.site.hg(REPOSITORY, "commit", "-q", "-A", "-m", "huge", "huge")
    connection.request("GET", f"/{REPOSITORY}?cmd=getbundle", headers=headers)
    assert connection.getresponse().read(1000)
    assert len(list(large.queue.glob("*.served"))) == 1
    connection.close()
    wait_for("the slot is free", lambda: not any(large.queue.iterdir()), seconds=5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("more", [{"patience": "1"}])
def test_who_has_waited_too_long_is_refused(served: Served, protocol: str) -> None:
    slot = served.slot()
    clone = served.clone(protocol)
    said = clone.end()
    assert "waited 1 seconds, and 1 clone is still being served; try again in some minutes" in said
    assert "Traceback" not in said
    assert clone.process.returncode == 255
    assert not clone.folder.exists()
    assert served.waiting() == 0
    slot.leave()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_a_queue_everybody_is_served(served: Served, protocol: str) -> None:
    served.queue.rmdir()
    clone = served.clone(protocol)
    assert "2 changesets" in clone.end()
    served.queue.mkdir()


@pytest.mark.parametrize("more", [{"waiting": "50"}])
def test_clones_leave_threads_of_each_worker_for_others(served: Served, wait_for: WaitFor) -> None:
    slot = served.slot()
    # Two processes of two clones each, whichever takes it.
    clones = [served.clone("http") for _ in range(5)]

    def ended() -> list[Clone]:
        return [clone for clone in clones if clone.process.poll() is not None]

    wait_for("all wait or are refused", lambda: served.waiting() + len(ended()) == len(clones))
    refused = ended()
    assert refused
    for clone in refused:
        assert "2 clones are being served or wait in this part of the server" in clone.text()
    page = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=10)
    page.request("GET", f"/{REPOSITORY}/log")
    assert b"add two.txt" in page.getresponse().read()
    slot.leave()
    for clone in clones:
        if clone not in refused:
            clone.end()
            assert clone.process.returncode == 0, clone.text()


@pytest.mark.parametrize(
    "name", [b"changegroup\nroots 0\n", b"changegroupsubset\nbases 0\nheads 0\n"]
)
def test_there_is_no_older_way_past_the_queue(served: Served, name: bytes) -> None:
    out, _ = pace.communicate(served.session(name), 20)
    assert set(out.split()) == {b"0"}


def test_the_oldest_streams_wait_too(served: Served, wait_for: WaitFor) -> None:
    slot = served.slot()
    session = served.session(b"stream_out\n")
    assert session.stderr is not None
    # A place in the queue comes before the first question for a slot, this sentence after it.
    assert session.stderr.readline().decode() == WAITS.removeprefix("remote: ")
    assert served.waiting() == 1
    slot.leave()
    wait_for("it waits no more", lambda: served.waiting() == 0)
    out, err = pace.communicate(session, 60)
    assert err == b""
    assert out.startswith(b"0\n")
    assert b"data/one.txt.i" in out

"""Clones that no bundle covers share the slots of a host, over SSH and HTTPS together."""

from __future__ import annotations

import os
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import Result, wait_until
from testing.e2e.host import Host, most_clones_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

REPOSITORY: Final = "e2e/admission"
SLOTS: Final = 2
QUEUE: Final = "/run/hgfleet-admission"
WAITS: Final = "remote: waiting for a slot: 2 clones are being served"
# More than the buffers between a session and a client that reads nothing.
CONTENT_BYTES: Final = 12_000_000


@pytest.fixture(scope="module")
def source(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone of the repository, which has a large file."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path_factory.mktemp("source") / "work")
    if not work.heads():
        work.commit("large.bin", os.urandom(CONTENT_BYTES), "something of size")
        work.hg("push").ok()
    return work


@pytest.fixture
def ssh_host(cluster: Cluster) -> Host:
    """The host that serves both protocols."""
    return cluster.first("ssh")


def queue(host: Host, state: str) -> list[str]:
    """Return a line for each clone of the repository that is "served" or "waiting"."""
    lines = host.shell(f"cat {QUEUE}/*.{state} 2>/dev/null || :").splitlines()
    return [line for line in lines if f"repository={REPOSITORY} " in line]


@pytest.fixture
def unread(alice: Person) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Give a function that begins a clone over SSH whose client reads nothing of it."""
    sessions: list[subprocess.Popen[bytes]] = []
    values = {b"bundlecaps": b"HG20,bundle2=HG20%0Achangegroup%3D01%2C02", b"cg": b"1"}
    request = b"getbundle\n* %d\n" % len(values)
    request += b"".join(b"%s %d\n%s" % (name, len(value), value) for name, value in values.items())

    def begin() -> subprocess.Popen[bytes]:
        session = subprocess.Popen(
            ["ssh", *alice.ssh_options, *alice.ssh_target, f"hg -R {REPOSITORY} serve --stdio"],
            env=alice.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        sessions.append(session)
        assert session.stdin is not None
        session.stdin.write(request)
        session.stdin.flush()
        return session

    yield begin
    for session in sessions:
        session.kill()
        session.communicate()


def says(file: Path, words: str) -> Callable[[], bool]:
    """Return a probe for words in a file."""
    return lambda: words in file.read_text()


def test_more_clones_than_slots_wait_and_all_succeed(
    cluster: Cluster,
    ssh_host: Host,
    source: Clone,
    alice: Person,
    unread: Callable[[], subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    cursor = ssh_host.journal_cursor()
    reader = alice.clone(cluster.url(REPOSITORY), tmp_path / "reader", "--noupdate")
    node = source.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
    source.hg("push", "--force").ok()
    for _ in range(SLOTS):
        unread()
    wait_until("both slots are taken", lambda: len(queue(ssh_host, "served")) == SLOTS)

    def clone(number: int) -> Result:
        url = cluster.primary_url(REPOSITORY) if number % 2 else alice.ssh_url(REPOSITORY)
        return alice.hg("clone", "--noupdate", url, str(tmp_path / str(number)))

    with ThreadPoolExecutor(6) as pool:
        clones = [pool.submit(clone, number) for number in range(6)]
        wait_until("all wait", lambda: len(queue(ssh_host, "waiting")) == len(clones))

        # While the clones wait, other requests are served as usual.
        assert "1 changesets" in reader.hg("pull").ok().stdout
        reader.hg("pull", alice.ssh_url(REPOSITORY)).ok()
        assert cluster.get(f"{REPOSITORY}/rev/{node}").status == 200
        assert not any(future.done() for future in clones)

        # Two served sessions die, and the waiting clones continue.
        for line in queue(ssh_host, "served"):
            pid = line.rpartition("pid=")[2]
            ssh_host.run("kill", "-9", pid).ok()
        results = [future.result() for future in clones]

    for number, result in enumerate(results):
        assert WAITS in result.ok().output
        shown = alice.hg("-R", str(tmp_path / str(number)), "log", "-r", node, "-T", "{node}").ok()
        assert shown.stdout == node
    wait_until("nobody is left", lambda: not queue(ssh_host, "served"))
    lines = [line for line in ssh_host.journal_after(cursor) if "event=admission" in line]
    mine = [line for line in lines if f"repository={REPOSITORY}" in line]
    assert sum("decision=wait" in line for line in mine) == len(results)
    # The killed sessions logged no end.
    begun = next(n for n, line in enumerate(mine) if "decision=wait" in line)
    assert most_clones_at_once(mine[begun:]) <= SLOTS, "\n".join(mine)


def test_a_clone_that_is_given_up_leaves_the_queue(
    cluster: Cluster,
    ssh_host: Host,
    alice: Person,
    unread: Callable[[], subprocess.Popen[bytes]],
    tmp_path: Path,
    source: Clone,
) -> None:
    assert source.heads()
    served = [unread() for _ in range(SLOTS)]
    wait_until("both slots are taken", lambda: len(queue(ssh_host, "served")) == SLOTS)
    for number, url in enumerate((cluster.primary_url(REPOSITORY), alice.ssh_url(REPOSITORY))):
        said = tmp_path / f"said{number}"
        with said.open("w") as file:
            process = subprocess.Popen(
                [*alice.hg_command, "clone", url, str(tmp_path / str(number))],
                # Lines are written at once, as at a terminal.
                env={**alice.environment, "PYTHONUNBUFFERED": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        # Nothing on the way holds the message back.
        wait_until("the client reads that it waits", says(said, WAITS))
        assert len(queue(ssh_host, "waiting")) == 1
        process.kill()
        process.wait()
        # A proxy notices that a client has gone when it sends something to it.
        wait_until("it waits no more", lambda: not queue(ssh_host, "waiting"), 30)
    # A client that is served and goes away gives its slot back too.
    for session in served:
        session.kill()
        session.communicate()
    wait_until("the slots are free", lambda: not queue(ssh_host, "served"), 5)

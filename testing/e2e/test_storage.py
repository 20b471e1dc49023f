"""A repository gets today's storage format while people clone it, pull from it and push to it."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

HGFLEET = "/opt/hgfleet/current/bin/hgfleet"
AS_HG = "runuser -u hg -- env HGRCPATH=/etc/hgfleet/hgrc HGFLEET_USER=operator:test"
ZLIB = "--config format.revlog-compression=zlib --config format.sparse-revlog=no"


@pytest.fixture
def host(cluster: Cluster) -> Host:
    """The host where the repositories are."""
    return cluster.first("ssh")


@pytest.fixture
def old(host: Host, bob: Person, tmp_path: Path) -> Iterator[str]:
    """A repository of bob's in an old format, with history for an upgrade of some seconds."""
    path = f"people/bob/t{uuid.uuid4().hex[:12]}"
    bob.ssh("repo", "create", path).ok()
    history = bob.clone(bob.ssh_url("hgfleet"), tmp_path / "history", "--noupdate")
    history.hg("push", "--rev", "limit(all(), 300)", bob.ssh_url(path)).ok()
    host.shell(
        f"umask 027; {AS_HG} /opt/hgfleet/current/bin/hg -R /srv/hg/repos/{path} debugupgraderepo"
        f" --run --no-backup --quiet {ZLIB}"
    )
    yield path
    host.run(HGFLEET, "repo", "archive", path).ok()
    host.run(HGFLEET, "repo", "purge", "--now", path, path).ok()


def again_and_again(
    work: Callable[[int], object], stop: threading.Event, problems: list[str]
) -> threading.Thread:
    """Repeat an action in a thread until it is stopped or fails."""

    def loop() -> None:
        number = 0
        try:
            while not stop.is_set():
                work(number)
                number += 1
        except AssertionError as error:
            problems.append(str(error))

    thread = threading.Thread(target=loop)
    thread.start()
    return thread


@pytest.mark.whole
def test_nobody_notices_an_upgrade(
    cluster: Cluster, host: Host, bob: Person, alice: Person, old: str, tmp_path: Path
) -> None:
    work = bob.clone(bob.ssh_url(old), tmp_path / "work")
    follower = alice.clone(cluster.url(old), tmp_path / "follower")
    assert "no revlog-compression-zstd" in host.run(HGFLEET, "storage", "plan", old).ok().stdout
    show = ["systemctl", "show", "--property=MainPID", "hgfleet-web.service"]
    workers = host.run(*show).ok().stdout
    stop, problems, pushed = threading.Event(), list[str](), list[str]()

    def clone(number: int) -> None:
        made = alice.clone(cluster.url(old), tmp_path / f"clone-{number}", "--noupdate")
        made.hg("verify", "--quiet").ok()

    def push(number: int) -> None:
        node = work.commit("pushed.txt", uuid.uuid4().bytes, f"push {number}")
        work.hg("push").ok()
        pushed.append(node)

    jobs: list[Callable[[int], object]] = [clone, push, lambda _: follower.hg("pull").ok()]
    threads = [again_and_again(job, stop, problems) for job in jobs]
    try:
        wait_until("a first push", lambda: pushed, seconds=60)
        said = host.run(HGFLEET, "storage", "upgrade", "--format", "text", old).ok().stdout
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert problems == []
    assert f"{old}: upgraded in" in said
    assert "zlib generaldelta -> zstd generaldelta sparse" in said
    assert cluster.remote_heads(old) == work.heads()
    assert host.run(*show).ok().stdout == workers
    status = host.run(HGFLEET, "storage", "status", old).ok().stdout
    assert "zstd generaldelta sparse" in status
    store = f"/srv/hg/repos/{old}/.hg/store"
    assert host.shell(f"stat -c '%U %G %a' {store}") == "hg hg 2750\n"
    # A worker that begins to read now reads the new store, and new pushes to it.
    push(-1)
    follower.hg("pull").ok()
    assert follower.hg("log", "-r", pushed[-1], "-T", "{desc}").ok().stdout == "push -1"

    def tidied() -> bool:
        host.run(HGFLEET, "storage", "upgrade", old).ok()
        return "storage-upgrade" not in host.run(HGFLEET, "storage", "status", old).ok().stdout

    # Idle workers may keep the old store open until they end, or for a day.
    host.systemctl("reload", "hgfleet-web.service").ok()
    wait_until("the old store is removed", tidied, seconds=90, every=1)
    host.shell(f"{AS_HG} /opt/hgfleet/current/bin/hg -R /srv/hg/repos/{old} verify --quiet")

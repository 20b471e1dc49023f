"""The mirrors of the cluster, as the proxy, the primary and a reader see them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone

REPOSITORY: Final = "e2e/replication"
SECONDS: Final = 90
"""For a state that comes by itself, on a machine under load."""


def mirrors_of(cluster: Cluster) -> list[Host]:
    """Return the web hosts that take no pushes."""
    primary = cluster.first("ssh")
    found = [host for host in cluster.all("web") if host != primary]
    assert len(found) > 1, f"expected two mirrors: {found}"
    return found


def log_of(host: Host) -> str:
    """Return the push log of the repository on a host."""
    return host.shell(f"cat /srv/hg/repos/{REPOSITORY}/.hg/store/pushlog")


def is_used(cluster: Cluster, host: Host) -> bool:
    """Tell whether the proxy sends readers to a web host."""
    shown = cluster.first("proxy").shell("echo 'show stat' | socat - /run/haproxy/admin.sock")
    rows = [line.split(",") for line in shown.splitlines() if line.startswith("web,")]
    return next(row[17] for row in rows if row[1] == host.name).startswith("UP")


def wait_for_use(cluster: Cluster, host: Host) -> None:
    """Wait until a mirror has caught up and takes readers."""
    wait_until(f"the proxy uses {host.name}", lambda: is_used(cluster, host), SECONDS)


def wait_for_equality(cluster: Cluster) -> None:
    """Wait until each mirror has the push log of the primary, then compare all repositories."""
    for host in mirrors_of(cluster):

        def is_equal(host: Host = host) -> bool:
            return log_of(host) == log_of(cluster.first("ssh"))

        def is_verified(host: Host = host) -> bool:
            return bool(host.run("hgfleet", "replication", "verify").ok())

        wait_until(f"{host.name} has every push", is_equal, SECONDS)
        wait_until(f"{host.name} is what the primary is", is_verified, SECONDS)


def pushed(work: Clone, content: bytes) -> tuple[str, str]:
    """Push a changeset; return its node and what the pusher reads."""
    node = work.commit("file.txt", content, "in spite of it")
    return node, work.hg("push").ok().output


@dataclass
class Reader:
    """A client that reads the heads of the repository over HTTPS, five times a second.

    A read that hangs delays no later one: each has a thread.
    """

    cluster: Cluster
    failed: list[tuple[float, str]] = field(default_factory=list)
    """When each failed read began (`time.monotonic`), and the answer."""
    begun: list[float] = field(default_factory=list)
    """When each read began that succeeded."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Reader:
        self._start(self._read_on)
        self.wait_for_reads(3)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in list(self._threads):
            thread.join(SECONDS)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read_on(self) -> None:
        while not self._stop.wait(0.2):
            self._start(self._read)

    def _read(self) -> None:
        began = time.monotonic()
        try:
            page = self.cluster.get(f"{REPOSITORY}?cmd=heads")
            problem = "" if page.status == 200 else f"{page.status} {page.body}"
        except AssertionError as error:
            problem = str(error)
        if problem:
            self.failed.append((began, problem))
        else:
            self.begun.append(began)

    def wait_for_reads(self, count: int, since: float = 0.0) -> None:
        """Wait until so many reads have succeeded that began after a moment."""

        def succeeded() -> bool:
            found = [began for began in self.begun if began >= since]
            assert len(found) >= count, f"{len(found)} reads, failed: {self.failed[-3:]}"
            return True

        wait_until("reads succeed", succeeded, SECONDS)

    def failures(self, since: float) -> list[tuple[float, str]]:
        """Return the reads that failed and began after a moment: seconds after it, and answer."""
        return [(began - since, answer) for began, answer in self.failed if began >= since]

"""A pusher and a reader that continue while hosts are away, and the state in the end."""

from __future__ import annotations

import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from testing.e2e.command import wait_until
from testing.e2e.mirrors import REPOSITORY, SECONDS, is_equal, log_of, mirrors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone

RECORDED: Final = re.compile(r"push (\d+) recorded")


def wait_for_equality(cluster: Cluster) -> None:
    """Wait until each mirror has the push log of the primary, then compare all repositories."""
    primary = cluster.first("ssh")
    for host in mirrors_of(cluster):

        def has_all(host: Host = host) -> bool:
            return log_of(host) == log_of(primary)

        wait_until(f"{host.name} has every push", has_all, SECONDS)
        wait_until(f"{host.name} is what the primary is", partial(is_equal, host), SECONDS)


def pushed(work: Clone, content: bytes) -> tuple[str, str]:
    """Push a changeset; return its node and the output of hg."""
    node = work.commit("file.txt", content, "in spite of it")
    return node, work.hg("push").ok().output


def number_of(said: str) -> int:
    """Return the number of the push in the output of a pusher."""
    told = RECORDED.search(said)
    assert told, said
    return int(told[1])


@dataclass
class Reader:
    """A client that reads the heads of the repository over HTTPS, five times a second.

    Each read has a thread, so that a read that hangs delays no later read.
    """

    cluster: Cluster
    failed: list[tuple[float, str]] = field(default_factory=list)
    """When each failed read began (`time.monotonic`), and the answer."""
    begun: list[float] = field(default_factory=list)
    """When each successful read began."""
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
        """Wait until so many reads that began after a moment have succeeded."""

        def succeeded() -> bool:
            reads = [began for began in self.begun if began >= since]
            assert len(reads) >= count, f"{len(reads)} reads, failed: {self.failed[-3:]}"
            return True

        wait_until("reads succeed", succeeded, SECONDS)

    def failures(self, since: float) -> list[tuple[float, str]]:
        """Return the failed reads that began after a moment: seconds since then, and answer."""
        return [(began - since, answer) for began, answer in self.failed if began >= since]


@dataclass
class Pusher:
    """A client that pushes without a pause, until a push fails."""

    work: Clone
    acknowledged: dict[int, str] = field(default_factory=dict)
    """Pushes that the server said it has recorded: number and changeset."""
    failed: str = ""
    """The output of the failed push."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Pusher:
        self._thread = threading.Thread(target=self._push_on, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "a push hangs"

    def _push_on(self) -> None:
        while not self._stop.is_set():
            node = self.work.commit("file.txt", uuid.uuid4().bytes, "in spite of it")
            push = self.work.hg("push")
            if told := RECORDED.search(push.output):
                self.acknowledged[int(told[1])] = node
            if push.code:
                self.failed = push.output
                return

    def wait_for_pushes(self, count: int) -> None:
        """Wait until so many pushes are acknowledged."""

        def has_pushed() -> bool:
            return len(self.acknowledged) >= count

        wait_until("pushes are acknowledged", has_pushed, SECONDS)

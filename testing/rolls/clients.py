"""Clients that clone, pull and push for as long as a deploy takes."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from testing.e2e.command import wait_until
from testing.faults.mirrors import number_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

REPOSITORY: Final = "e2e/sessions"
PAUSE_SECONDS: Final = 2.0
"""Between two operations of a client, so that a small machine has processor time for the hosts."""

SECONDS: Final = 120
"""A long deadline, for operations on a busy machine."""


@dataclass
class Clients:
    """Clients that push over SSH, and clone and pull over HTTPS, all the time.

    A clone or a pull also fails if it misses a push that ended before it began: the proxy must not
    use hosts that may miss a push.
    """

    cluster: Cluster
    folder: Path
    repository: str = REPOSITORY
    failed: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The duration of each operation that succeeded, by kind."""
    _newest: tuple[str, str] = ("", "")
    """The changeset of the last push that ended, and what its pusher read."""
    _numbers: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: dict[str, threading.Thread] = field(default_factory=dict)

    def __enter__(self) -> Clients:
        alice, bob = self.cluster.person("alice"), self.cluster.person("bob")
        pushing = alice.clone(alice.ssh_url(self.repository), self.folder / "pushing")
        self._push(pushing)
        pulling = bob.clone(self.cluster.url(self.repository), self.folder / "pulling")
        for kind, act in (
            ("clone", lambda: self._clone(bob)),
            ("pull", lambda: self._pull(pulling)),
            ("push", lambda: self._push(pushing)),
        ):
            self.go_on(kind, act)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads.values():
            thread.join(SECONDS)

    def wait_for_more(self) -> None:
        """Wait until each client has finished another operation, which may have failed."""
        before = Counter(self._numbers)
        wait_until(
            "every client goes on",
            lambda: all(self._numbers[kind] > before[kind] + 1 for kind in self._threads),
            SECONDS,
        )

    @property
    def said(self) -> str:
        """The number of operations and the slowest operation of each kind, for a report."""
        return ", ".join(
            f"{len(times)} of {kind}, {max(times):.1f} s at most"
            for kind, times in self.seconds.items()
            if times
        )

    def go_on(self, kind: str, act: Callable[[], None]) -> None:
        """Repeat an operation until the end; it fails by an AssertionError or OSError."""

        def run() -> None:
            while not self._stop.wait(PAUSE_SECONDS):
                begin = time.monotonic()
                try:
                    act()
                    self.seconds[kind].append(time.monotonic() - begin)
                except (AssertionError, OSError) as error:
                    self.failed.append(f"{kind} at {time.strftime('%H:%M:%S')}: {error}")
                self._numbers[kind] += 1

        thread = threading.Thread(target=run, daemon=True)
        self._threads[kind] = thread
        thread.start()

    def _push(self, work: Clone) -> None:
        node = work.commit("file", f"{time.time_ns()}\n".encode(), "pushed during a deploy")
        said = work.hg("push").ok().output
        number_of(said)
        self._newest = (node, said)

    def _clone(self, person: Person) -> None:
        place, newest = self.folder / f"clone-{time.monotonic_ns()}", self._newest
        try:
            clone = person.clone(self.cluster.url(self.repository), place, "--noupdate")
            require(clone, newest)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _pull(self, clone: Clone) -> None:
        newest = self._newest
        clone.hg("pull").ok()
        require(clone, newest)


def require(clone: Clone, pushed: tuple[str, str]) -> None:
    """Check that a clone has a push that ended before."""
    node, said = pushed
    shown = clone.hg("log", "-r", node, "-T", "{node}")
    assert shown.code == 0, f"{shown}\nits pusher read: {said}"

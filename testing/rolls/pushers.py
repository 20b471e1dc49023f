"""Pushes to several repositories at the same time, without pause, of changesets made before."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from testing.e2e.command import wait_until
from testing.faults.mirrors import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.e2e.people import Clone

SECONDS: Final = 120
"""A long deadline, for operations on a busy machine."""


def prepare(work: Clone, number: int) -> list[str]:
    """Commit so many changesets with a single hg, as a line of history; return their nodes."""
    stamp = time.time_ns()
    patches = "".join(
        f"# HG changeset patch\n# User alice\n{stamp}: {each}\n\n"
        f"diff --git a/{stamp}-{each} b/{stamp}-{each}\nnew file mode 100644\n"
        f"--- /dev/null\n+++ b/{stamp}-{each}\n@@ -0,0 +1,1 @@\n+{each}\n"
        for each in range(number)
    )
    first = int(work.hg("log", "-r", "tip", "-T", "{rev}").ok().stdout) + 1
    file = work.path.with_suffix(".patch")
    file.write_text(patches)
    work.hg("import", "--quiet", "--bypass", str(file)).ok()
    return work.hg("log", "-r", f"{first}:", "-T", "{node}\n").ok().stdout.split()


@dataclass
class Pushers:
    """A pusher for each clone; `recorded` has the number and node of each push."""

    works: Sequence[Clone]
    changesets: int = 400
    """Number of changesets of each pusher, more than it can push during a test."""
    recorded: list[dict[int, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _begun: float = 0.0
    _ended: float = 0.0

    def __enter__(self) -> Pushers:
        prepared = [prepare(work, self.changesets) for work in self.works]
        self.recorded = [{} for _ in self.works]
        self._begun = time.monotonic()
        for index, (work, nodes) in enumerate(zip(self.works, prepared, strict=True)):
            thread = threading.Thread(target=self._push, args=(index, work, nodes), daemon=True)
            self._threads.append(thread)
            thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)
        self._ended = time.monotonic()

    def _push(self, index: int, work: Clone, nodes: Sequence[str]) -> None:
        try:
            for node in nodes:
                if self._stop.is_set():
                    return
                said = work.hg("push", "--rev", node).ok().output
                self.recorded[index][number_of(said)] = node
            self.failed.append(f"{work.path}: no changeset was left to push")
        except AssertionError as error:
            self.failed.append(f"{work.path}: {error}")

    def wait_for_more(self) -> None:
        """Wait until each pusher has pushed twice more: the second push began after this call."""
        before = [len(pushes) for pushes in self.recorded]

        def went_on() -> bool:
            assert not self.failed, self.failed
            return all(
                len(now) >= then + 2 for now, then in zip(self.recorded, before, strict=True)
            )

        wait_until("every pusher goes on", went_on, SECONDS)

    @property
    def rate(self) -> float:
        """Pushes per second of all pushers together."""
        return sum(map(len, self.recorded)) / (self._ended - self._begun)

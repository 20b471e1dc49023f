"""Other clients while archives fail: their downloads have to stay the same, to the byte."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ARCHIVES: Final = 100
PAGES: Final = 1000


class Target(NamedTuple):
    """An address that others request: a path, and whether its repository is private."""

    path: str
    is_private: bool = False


class Reply(NamedTuple):
    """Status and content of an answer; status 0: the connection broke off."""

    status: int
    digest: str

    @classmethod
    def of(cls, status: int, body: bytes) -> Reply:
        """Make the reply of an answer."""
        return cls(status, hashlib.sha256(body).hexdigest())


@dataclass
class Others:
    """Clients of healthy repositories; `fetch` requests a target with a query.

    Each query is different, so that no answer comes from a cache.
    """

    fetch: Callable[[Target, str], Reply]
    archives: Sequence[Target]
    pages: Sequence[Target]
    right: dict[Target, Reply] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    """The duration of each request for a page."""
    wrong: list[str] = field(default_factory=list)
    """Answers that differ from the first: other bytes with status 200, or another status."""

    def learn(self) -> None:
        """Request each target once, before anything fails; SystemExit if there is no answer."""
        for target in (*self.archives, *self.pages):
            reply = self.fetch(target, "before=1")
            if reply.status != 200:
                raise SystemExit(f"{target.path}: got status {reply.status}, expected 200")
            self.right[target] = reply

    def run(self, archives: int = ARCHIVES, pages: int = PAGES) -> None:
        """Request so many archives and pages, at the same time."""
        threads = [
            threading.Thread(target=self._ask, args=(self.archives, archives, "archive")),
            threading.Thread(target=self._ask, args=(self.pages, pages, "page")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, targets: Sequence[Target], count: int, kind: str) -> None:
        for number in range(count):
            target = targets[number % len(targets)]
            started = time.perf_counter()
            reply = self.fetch(target, f"{kind}={number}")
            if kind == "page":
                self.seconds.append(time.perf_counter() - started)
            if reply != self.right[target]:
                how = "other bytes" if reply.status == 200 else f"status {reply.status}"
                self.wrong.append(f"{kind} {number} {target.path}: {how}")

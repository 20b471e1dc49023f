"""Health of this web worker, for the balancer: 200, 404 while draining, 503 while failing.

404 takes no new clients from HAProxy (`disable-on-404`) and lets the present ones finish. An
overload is 200 with `overloaded` in the document: without this host, the others would have even
more to do.
"""

from __future__ import annotations

import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.web.journal import report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hgfleet.registry.model import Registry

HEALTH_S: Final = 1.0
"""For how long the list of unreadable repositories is reused (seconds)."""

SAMPLE: Final = 50
"""Repositories that one look reads, in turn: reading 10,000 each second is a load of its own."""


class Health(NamedTuple):
    """The status of an answer to /healthz, and its document."""

    status: HTTPStatus
    document: dict[str, object]


class Found(NamedTuple):
    """The number of public repositories, and those that cannot be read."""

    public: int
    unreadable: tuple[str, ...]


def assess(
    found: Found | None,
    *,
    is_draining: bool,
    has_renderers: bool = True,
    load: Mapping[str, int] | None = None,
) -> Health:
    """Decide about a worker; `found` is None without a registry.

    One unreadable repository does not make this server sick: if it were corrupt everywhere, all
    mirrors would leave the proxy at once. A server that can read none of them is sick.
    """
    document: dict[str, object] = {}
    problem = ""
    status = HTTPStatus.OK
    if found is None:
        status, problem = HTTPStatus.SERVICE_UNAVAILABLE, "no registry"
    else:
        document = {"repositories": found.public, "unreadable": len(found.unreadable)}
        if found.unreadable and len(found.unreadable) == found.public:
            status, problem = HTTPStatus.SERVICE_UNAVAILABLE, "no repository can be read"
        elif not has_renderers:
            status, problem = HTTPStatus.SERVICE_UNAVAILABLE, "no renderer can be started"
    if status is HTTPStatus.OK and is_draining:
        status, problem = HTTPStatus.NOT_FOUND, "draining"
    word = "ok" if status is HTTPStatus.OK else "failing"
    if load is not None:
        document["load"] = dict(load)
        document["overloaded"] = load["waiting"] > 0
    return Health(status, {"status": word, **document, **({"problem": problem} if problem else {})})


class Readability:
    """The public repositories that this process cannot read, looked up at most once a second."""

    def __init__(self, is_readable: Callable[[str], bool]) -> None:
        self._is_readable = is_readable
        self._lock = threading.Lock()
        self._last: tuple[float, Found] | None = None
        self._paths: tuple[str, ...] | None = None
        self._next = 0
        self._unreadable: dict[str, None] = {}

    def forget(self) -> None:
        """Look again at the next request, because the registry has changed."""
        with self._lock:
            self._last = None
            self._paths = None

    def look(self, registry: Registry | None) -> Found | None:
        """Read the next repositories; a change of the unreadable ones is reported."""
        if registry is None:
            return None
        with self._lock:
            now = time.monotonic()
            if self._last is not None and now - self._last[0] < HEALTH_S:
                return self._last[1]
            if self._paths is None:
                self._paths = tuple(
                    path for path, entry in registry.repositories.items() if entry.is_public
                )
                self._next, self._unreadable = 0, {}
            before = tuple(self._unreadable)
            self._look_at(self._sample(self._paths))
            if len(self._unreadable) >= min(SAMPLE, len(self._paths)):
                # Perhaps the disk is gone: look at all until one can be read.
                self._look_at_all(self._paths)
            found = Found(len(self._paths), tuple(self._unreadable))
            if found.unreadable and found.unreadable != before:
                report("unreadable", " ".join(found.unreadable[:20]))
            self._last = (now, found)
            return found

    def _sample(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        sample = paths[self._next : self._next + SAMPLE]
        self._next += SAMPLE
        if self._next >= len(paths):
            self._next = 0
        return sample

    def _look_at(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            if self._is_readable(path):
                self._unreadable.pop(path, None)
            else:
                self._unreadable[path] = None

    def _look_at_all(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            if self._is_readable(path):
                self._unreadable.pop(path, None)
                return
            self._unreadable[path] = None

"""Health of this web worker, for the balancer: 200, 404 while draining, 503 while failing.

For HAProxy a host that answers 404 or 503 is down: it gets no new requests, and those under way
finish. An overload is 200 with `overloaded` in the document: without this host, the others would
have even more to do. A mirror that may miss an announced push fails, and so does a host without
room for the answers that nginx writes to the disk: there, answers would be cut off.
"""

from __future__ import annotations

import json
import os
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.stored_time import is_future
from hgfleet.web.http.journal import report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hgfleet.registry.model.registry import Registry

HEALTH_S: Final = 1.0
"""For how long the list of unreadable repositories is reused (seconds)."""

SAMPLE: Final = 50
"""Repositories that a look reads, in turn: reading 10,000 each second is a load of its own."""

LEASE_MARGIN_S: Final = 2.0
"""Seconds before the end of its lease at which a mirror fails, so the proxy notices in time."""

LEASE_MOST_S: Final = 600.0
"""A lease that ends later than that (seconds) was written by a clock that was wrong."""

DRAIN_BYTES: Final = 100

LEAST_INODES: Final = 1000
"""Free inodes of the file system that answers are written to, a file for each slow client."""

STATE_BYTES: Final = 16 * 1024 * 1024
"""Bound of the file that replication writes."""


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
    mirror_problem: str = "",
    spool_problem: str = "",
    load: Mapping[str, int] | None = None,
) -> Health:
    """Decide about a worker; `found` is None without a registry.

    A single unreadable repository does not make this server fail: if it were corrupt everywhere,
    all mirrors would leave the proxy at once. A server that can read no repository fails.
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
        elif spool_problem:
            status, problem = HTTPStatus.SERVICE_UNAVAILABLE, spool_problem
        elif mirror_problem:
            status, problem = HTTPStatus.SERVICE_UNAVAILABLE, mirror_problem
            # A deploy waits for the host, and not for its mirror to catch up.
            document["behind"] = True
    if status is HTTPStatus.OK and is_draining:
        status, problem = HTTPStatus.NOT_FOUND, "draining"
    word = "ok" if status is HTTPStatus.OK else "failing"
    if load is not None:
        document["load"] = dict(load)
        document["overloaded"] = load["waiting"] > 0
    return Health(status, {"status": word, **document, **({"problem": problem} if problem else {})})


def mirror_problem(state: bytes | None, *, now: float) -> str:
    """Say why a mirror may be behind, by the state that replication wrote; empty if it is not.

    `now` is in seconds since 1970. A mirror that cannot reach the primary cannot know that it is
    behind, so it serves as long as the primary or the broker has confirmed its lease.
    """
    if state is None:
        return "replication has written no state"
    try:
        document = json.loads(state)
        caught_up, lease_until = document["caught_up"], document["lease_until"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "the state of replication cannot be read"
    is_right = isinstance(caught_up, bool) and type(lease_until) in (int, float)
    if not is_right or lease_until != lease_until:
        return "the state of replication cannot be read"
    if not caught_up:
        return "replication has not caught up"
    if lease_until <= now + LEASE_MARGIN_S:
        return "neither the primary nor the broker has confirmed this mirror's lease"
    if is_future(lease_until, now, LEASE_MOST_S):
        return "the lease of this mirror ends in the far future"
    return ""


def spool_problem(free_bytes: int, free_inodes: int | None, *, least_bytes: int) -> str:
    """Say why nginx cannot write answers to its spool; empty if it can.

    `free_inodes` is None for a file system that does not count them.
    """
    if free_bytes < least_bytes:
        return f"the disk for answers has {free_bytes:,} bytes free, expected {least_bytes:,}"
    if free_inodes is not None and free_inodes < LEAST_INODES:
        return f"the disk for answers has {free_inodes:,} inodes free, expected {LEAST_INODES:,}"
    return ""


def spool_problem_of(folder: Path | None, *, least_bytes: int) -> str:
    """Say why nginx cannot write answers, by its folder; without one nothing is looked at."""
    if folder is None:
        return ""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"the folder for answers cannot be read: {error.strerror}"
    if found.f_flag & os.ST_RDONLY:
        return "the disk for answers is read-only"
    inodes = found.f_favail if found.f_files else None
    return spool_problem(found.f_bavail * found.f_frsize, inodes, least_bytes=least_bytes)


def is_draining(path: Path, *, now: float) -> bool:
    """Say whether the file for draining is there and still counts.

    A deploy writes `until=SECONDS` (since 1970) into it, so that a deploy that was killed leaves no
    host drained. Any other file, such as an operator's empty file, counts until it is removed.
    """
    try:
        words = path.read_bytes()[:DRAIN_BYTES].split()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if not words or not words[0].startswith(b"until="):
        return True
    try:
        return now < float(words[0].removeprefix(b"until="))
    except ValueError:
        return True


def mirror_problem_of(path: Path | None) -> str:
    """Say why this host may be behind, by the file of replication; None: it is no mirror."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            state = file.read(STATE_BYTES)
    except OSError:
        state = None
    return mirror_problem(state, now=time.time())


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
        """Read the next repositories; report a change of the unreadable repositories."""
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
                # Perhaps the disk is gone: look at all repositories until one can be read.
                self._look_at_all(self._paths)
            result = Found(len(self._paths), tuple(self._unreadable))
            if result.unreadable and result.unreadable != before:
                report("unreadable", " ".join(result.unreadable[:20]))
            self._last = (now, result)
            return result

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

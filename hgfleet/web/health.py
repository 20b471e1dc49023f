"""Health of this web worker, for the balancer: 200, 404 while draining, 503 while failing.

404 takes no new clients from HAProxy (`disable-on-404`) and lets the present ones finish.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.web.journal import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.registry.model import Registry

HEALTH_S: Final = 1.0
"""For how long the list of unreadable repositories is reused (seconds)."""


class Health(NamedTuple):
    """The status of an answer to /healthz, and its document."""

    status: HTTPStatus
    document: dict[str, object]


def assess(registry: Registry | None, unreadable: Sequence[str], *, is_draining: bool) -> Health:
    """Decide about a worker that cannot read these public repositories.

    One unreadable repository does not make this server sick: if it were corrupt everywhere, all
    mirrors would leave the proxy at once. A server that can read none of them is sick.
    """
    found: dict[str, object] = {}
    problem = ""
    status = HTTPStatus.OK
    if registry is None:
        status, problem = HTTPStatus.SERVICE_UNAVAILABLE, "no registry"
    else:
        public = sum(entry.is_public for entry in registry.repositories.values())
        found = {"repositories": public, "unreadable": len(unreadable)}
        if unreadable and len(unreadable) == public:
            status, problem = HTTPStatus.SERVICE_UNAVAILABLE, "no repository can be read"
    if status is HTTPStatus.OK and is_draining:
        status, problem = HTTPStatus.NOT_FOUND, "draining"
    word = "ok" if status is HTTPStatus.OK else "failing"
    return Health(status, {"status": word, **found, **({"problem": problem} if problem else {})})


class Readability:
    """The public repositories that this process cannot read, looked up at most once a second."""

    def __init__(self, is_readable: Callable[[str], bool]) -> None:
        self._is_readable = is_readable
        self._last: tuple[float, tuple[str, ...]] | None = None

    def forget(self) -> None:
        """Look again at the next request, because the registry has changed."""
        self._last = None

    def unreadable(self, registry: Registry) -> tuple[str, ...]:
        """Return the paths of the unreadable ones; a change of them is reported."""
        now = time.monotonic()
        last = self._last
        if last is not None and now - last[0] < HEALTH_S:
            return last[1]
        found = tuple(
            path
            for path, repository in registry.repositories.items()
            if repository.is_public and not self._is_readable(path)
        )
        if found and (last is None or found != last[1]):
            report("unreadable", " ".join(found[:20]))
        self._last = (now, found)
        return found

"""Hooks of gunicorn: the health socket, and the end of a worker that cannot compute any more.

The master makes the socket once and keeps it over reloads; every worker answers checks on it.
`/etc/hgfleet/gunicorn.py` imports the functions under the names that gunicorn looks for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hgfleet.web.http import health_listener
from hgfleet.web.http.settings import from_environment

if TYPE_CHECKING:
    from hgfleet.web.http.worker_health import Health


def on_starting(server: Any) -> None:
    """Listen for health checks, in the master."""
    path = from_environment(os.environ).health_socket
    server.hgfleet_health = health_listener.listen(path) if path is not None else None


def pre_fork(server: Any, worker: Any) -> None:
    """Hand the socket to a new worker."""
    worker.hgfleet_health = getattr(server, "hgfleet_health", None)


def post_worker_init(worker: Any) -> None:
    """Answer health checks in a worker; the first check that finds it broken ends it."""
    application = worker.wsgi

    def assess() -> Health:
        health: Health = application.health()
        if not application.can_compute():
            # It ends its requests under way; the master starts another worker.
            worker.alive = False
        return health

    if worker.hgfleet_health is not None:
        health_listener.answer_checks(worker.hgfleet_health, assess)

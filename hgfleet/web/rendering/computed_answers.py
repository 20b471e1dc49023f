"""Answers that renderers compute: a slot, a renderer with a budget, and refusals with reasons."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from hgfleet.web.engine import frames
from hgfleet.web.engine.execution import Execution
from hgfleet.web.engine.opened_repositories import Served, UnavailableRepositoryError
from hgfleet.web.engine.places import place_of
from hgfleet.web.http.exchange import RefusedError, not_found, unavailable
from hgfleet.web.rendering import budgets
from hgfleet.web.rendering.budgets import Kind
from hgfleet.web.rendering.lease import LimitError, RefusedAnswerError, Replies, Terms
from hgfleet.web.rendering.renderer_pool import NoServerError, Renderers
from hgfleet.web.rendering.slots import BusyError, Limits, Shares, Slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.hg.fingerprint import Fingerprint
    from hgfleet.registry.model.registry import Repository
    from hgfleet.web.engine.opened_repositories import Repositories
    from hgfleet.web.http.exchange import Environ, Exchange
    from hgfleet.web.http.settings import Settings
    from hgfleet.web.rendering.lease import Lease
    from hgfleet.web.rendering.slots import Place

PATIENCE_SECONDS: Final = 20.0
"""For how long a request waits for a slot; browsers and proxies give up later."""

GONE: Final = "there is no such repository here any more; nothing was sent"
"""For a client that lost its permission while its clone waited."""

_LOOK_SECONDS: Final = 0.25
"""Time between two looks whether a waiting client is still connected."""


class Rendering:
    """The renderers of a worker and their slots. Safe in threads; made before the first thread."""

    def __init__(self, settings: Settings, repositories: Repositories) -> None:
        self._settings = settings
        self._renderers = Renderers(repositories, settings.renderers)
        self._slots = Slots(Limits(settings.renderers, settings.waiting))
        self._streams = Shares(settings.streams)
        self._clones = threading.BoundedSemaphore(settings.clones)

    def is_alive(self) -> bool:
        """Whether this worker can compute answers."""
        return self._renderers.check()

    def end_idle(self) -> None:
        """End the renderers that have been idle for long."""
        self._renderers.end_idle()

    def load(self) -> dict[str, int]:
        """Return the numbers of running and of waiting requests, and of the slots."""
        return self._slots.load()

    def execution(
        self, exchange: Exchange, kind: Kind, repository: Repository, fingerprint: Fingerprint
    ) -> Execution:
        """Return a run of hgweb in a renderer; raises RefusedError."""
        connection = exchange.environ.get("gunicorn.socket")

        def spent(seconds: float) -> None:
            exchange.entry["cpu"] = seconds

        place = self._enter(exchange, kind)
        try:
            self._wait(exchange, place, connection)
            if not exchange.may_go_on():
                raise not_found()
            limits = budgets.budget(self._settings, kind)
            terms = Terms(limits, connection, spent, exchange.identity)
            lease = self._lend(repository, terms)
        except BaseException:
            self._slots.leave(place)
            raise
        return _execution(repository, fingerprint, lease, lambda: self._slots.leave(place))

    def stream(
        self, exchange: Exchange, repository: Repository, fingerprint: Fingerprint
    ) -> Execution:
        """Return a run of hgweb for a data stream; raises BusyError above an address's share.

        The address's share is taken first. Only the renderer finds out whether the request is a
        clone that needs a slot, so it asks through the channel while it runs: whether the worker
        has a thread for a clone, and later whether the client would still be let in. The reply is
        "" or the sentence of a refusal. `end` gives the share and the thread back.
        """
        leave = self._streams.enter(exchange.client)
        is_clone = False

        def refusal(question: str) -> str:
            nonlocal is_clone
            if question == frames.GO_ON:
                with contextlib.suppress(UnavailableRepositoryError):
                    return "" if exchange.may_go_on() else GONE
                return GONE
            is_clone = is_clone or self._clones.acquire(blocking=False)
            if is_clone:
                return ""
            return (
                f"{self._settings.clones} clones are being served or wait in this part of the "
                "server; try again in some minutes"
            )

        def end() -> None:
            leave()
            if is_clone:
                self._clones.release()

        def spent(seconds: float) -> None:
            exchange.entry["cpu"] = seconds

        terms = Terms(
            budgets.budget(self._settings, Kind.STREAM),
            exchange.environ.get("gunicorn.socket"),
            spent,
            exchange.identity,
            Replies(exchange.entry.update, refusal),
        )
        try:
            lease = self._lend(repository, terms)
        except BaseException:
            end()
            raise

        def finish() -> None:
            end()
            if lease.limit:
                exchange.entry["refused"] = f"limit ({lease.limit})"[:100]

        return _execution(repository, fingerprint, lease, finish)

    def _lend(self, repository: Repository, terms: Terms) -> Lease:
        try:
            return self._renderers.lend(repository, terms)
        except NoServerError as problem:
            raise unavailable(
                "This part of the server is about to be replaced; try again in a minute."
            ) from problem

    def explain(
        self, exchange: Exchange, environ: Environ, kind: Kind | None, problem: Exception
    ) -> None:
        """Raise RefusedError for a request that passed its budget, or has no answer."""
        if isinstance(problem, RefusedAnswerError):
            exchange.entry["refused"] = "archive"
            raise RefusedError(HTTPStatus.FORBIDDEN, str(problem)) from problem
        if kind is None or kind is Kind.STREAM or not isinstance(problem, LimitError):
            return
        exchange.entry["refused"] = f"limit ({problem})"[:100]
        url = f"{exchange.base_url(self._settings.public_url)}{environ['SCRIPT_NAME']}"
        limits = budgets.budget(self._settings, kind)
        sentence = budgets.exceeded(limits, url, str(environ["PATH_INFO"]))
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, sentence) from problem

    def _enter(self, exchange: Exchange, kind: Kind) -> Place:
        try:
            return self._slots.enter(exchange.client, kind)
        except BusyError as problem:
            exchange.entry["refused"] = "share" if problem.is_share else "busy"
            status = HTTPStatus.TOO_MANY_REQUESTS
            if not problem.is_share:
                status = HTTPStatus.SERVICE_UNAVAILABLE
            raise RefusedError(status, str(problem), (("Retry-After", "10"),)) from problem

    def _wait(self, exchange: Exchange, place: Place, connection: Any) -> None:
        """Wait for the slot; raises RefusedError after the longest wait."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not place.granted.wait(_LOOK_SECONDS):
            if time.monotonic() > end or _is_gone(connection):
                exchange.entry["refused"] = "busy"
                raise RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"This request waited {PATIENCE_SECONDS:g} s for its turn; try again later.",
                    (("Retry-After", "30"),),
                )


def _is_gone(connection: Any) -> bool:
    """Whether the client has closed its connection."""
    poll = select.poll()
    with contextlib.suppress(AttributeError, OSError, ValueError):
        poll.register(connection.fileno(), select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))
    return False


def _execution(
    repository: Repository, fingerprint: Fingerprint, lease: Lease, end: Callable[[], object]
) -> Execution:
    """Return a run of hgweb in a lent renderer, which is handed back before `end`."""

    def hand_back(_: Served, *, is_whole: bool) -> None:
        # The lease knows by its frames whether the answer is whole.
        del is_whole
        try:
            lease.hand_back()
        finally:
            end()

    served = Served(place_of(repository), lease, fingerprint, 0)
    return Execution(served, hand_back)

"""The WSGI application: `gunicorn hgfleet.web.app:application`.

A request is routed by the registry (re-read when its file changed) to a list of repositories
(`listing`), to a repository (`repository_requests`), or to a page about the service.

Only GET and HEAD, and POST where a client sends the arguments of a reading command in the body.
Pushing is refused with a sentence that names the address for pushes. /healthz says 200 while this
process can serve, 503 while it cannot, and 404 while the drain file exists (`health`).
"""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import trace
from hgfleet.web.engine import opened_repositories
from hgfleet.web.engine.opened_repositories import AwayError
from hgfleet.web.http import access_log, headers, request_counts, routing, signin, worker_health
from hgfleet.web.http.exchange import (
    Exchange,
    RefusedError,
    method_not_allowed,
    not_found,
    unavailable,
)
from hgfleet.web.http.journal import report
from hgfleet.web.http.settings import Settings, from_environment
from hgfleet.web.index import listing
from hgfleet.web.index.registry_reader import RegistryReader
from hgfleet.web.rendering.computed_answers import Rendering
from hgfleet.web.requests.repository_requests import RepositoryRequests
from hgfleet.web.requests.request import is_wire
from hgfleet.web.requests.responses import EXPECTED, Responses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hgfleet.core.principal import Principal
    from hgfleet.registry.model.registry import Registry, Repository
    from hgfleet.web.http.exchange import Environ, StartResponse
    from hgfleet.web.index.catalogue import Catalogue

LONGEST_PATH: Final = 4096
LONGEST_QUERY: Final = 16384
"""Characters. Arguments of the wire protocol come in headers, so queries are short."""

_ROBOTS: Final = b"""User-agent: *
Disallow: /*/annotate
Disallow: /*/archive
Disallow: /*/comparison
Disallow: /*/diff
Disallow: /*/filelog
Disallow: /*/log
Disallow: /*/pushlog
Disallow: /*/raw-
Disallow: /*?
"""


class Application:
    """The web part of a process. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        """Load configuration and registry; each request looks again for a missing file."""
        self._settings = settings
        self._repositories = opened_repositories.Repositories(settings.root)
        self._readability = worker_health.Readability(self._repositories.is_readable)
        self._sign_in = signin.SignIn(settings)
        counting = request_counts.Counting(settings.counters, functools.partial(report, "counters"))
        self._responses = Responses(
            settings.title, access_log.AccessLog(settings.access_log), counting
        )
        self._listing = listing.Listing(
            settings,
            self._responses,
            self._repositories.changed,
            has_sign_in=self._sign_in.is_on,
        )
        try:
            self._repositories.check_configuration()
            self._repositories.warm()
        except Exception:
            # Reported, and not fatal: the next request notices a corrected hgrc.
            report("configuration", traceback.format_exc())
        self._rendering = Rendering(settings, self._repositories)
        self._requests = RepositoryRequests(
            settings, self._repositories, self._rendering, self._responses
        )
        # Not a method of this object: without a reference cycle, the renderers end with it.
        changed = functools.partial(_forget_missing, self._repositories, self._readability)
        self._registry = RegistryReader(settings.registry, settings.dynamic, changed)
        self._registry.load()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request; no request of a client makes this raise before its answer begins."""
        exchange = Exchange(
            environ=environ,
            start_response=start_response,
            method=environ.get("REQUEST_METHOD", "GET"),
            path=environ.get("PATH_INFO", ""),
            query=environ.get("QUERY_STRING", ""),
            started=time.perf_counter(),
            identity=trace.accepted(environ.get("HTTP_X_REQUEST_ID")) or trace.new(),
            entry={"cache": "off"},
        )
        trace.begin(exchange.identity)
        try:
            return self._answer(exchange)
        except RefusedError as refusal:
            return self._responses.refuse(exchange, refusal)
        except opened_repositories.UnavailableRepositoryError as problem:
            if isinstance(problem, AwayError):
                # A field of the request's line: many clients may ask while a repository is away.
                exchange.entry["refused"] = "parked" if problem.is_parked else "identity"
            else:
                report("unavailable", str(problem), exchange.identity)
            sentence = "This repository cannot be read here right now; try again in a minute."
            return self._responses.refuse(exchange, unavailable(sentence))
        except Exception as problem:
            if exchange.is_started:
                raise
            is_expected = isinstance(problem, EXPECTED)
            text = str(problem) if is_expected else traceback.format_exc()
            report("error", text, exchange.identity)
            failure = RefusedError(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "Something went wrong on this server. "
                f"Its operators find the reason as {exchange.identity}.",
            )
            return self._responses.refuse(exchange, failure)

    def _answer(self, exchange: Exchange) -> Iterable[bytes]:
        path = exchange.path
        if path == "/healthz":
            return self._healthz(exchange)
        if len(path) > LONGEST_PATH or len(exchange.query) > LONGEST_QUERY:
            raise RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, "This address is too long.")
        registry = self._registry.current()
        if registry is None:
            raise unavailable(
                "This server does not know its repositories yet; try again in a minute."
            )
        # The public answer first: a public repository is served without a look at the client.
        catalogue = self._registry.catalogue(registry)
        route = routing.resolve(path, registry, None, catalogue.is_folder)
        principal = None
        if not isinstance(route, routing.InRepository):
            principal = self._sign_in.principal(exchange)
            if principal is not None:
                route = routing.resolve(path, registry, principal, catalogue.is_folder)
        if isinstance(route, routing.InRepository):
            raw = str(exchange.environ.get("RAW_URI", path))
            if raw.startswith("/") and not routing.is_canonical(raw, route):
                raise not_found()
            exchange.may_go_on = functools.partial(
                self._may_go_on, exchange, principal, route.repository
            )
            return self._requests.answer(exchange, route)
        self._redirect_renamed(exchange, registry, principal)
        if (
            self._sign_in.is_on
            and principal is None
            and (path == "/login" or is_wire(exchange.query))
        ):
            raise self._sign_in.refused(exchange)
        if exchange.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return self._page(exchange, catalogue, route, principal)

    def _may_go_on(
        self, exchange: Exchange, principal: Principal | None, asked: Repository
    ) -> bool:
        """Whether a request that has waited would be let in now, too, to the same repository.

        Raises UnavailableRepositoryError.
        """
        if principal is not None:
            principal = self._sign_in.after_wait(exchange, principal)
        registry = self._registry.current()
        route = registry and routing.resolve(exchange.path, registry, principal, lambda *_: False)
        if not isinstance(route, routing.InRepository):
            return False
        self._repositories.check(asked.path, asked.identity)
        return route.repository.identity == asked.identity

    def _redirect_renamed(
        self, exchange: Exchange, registry: Registry, principal: Principal | None
    ) -> None:
        """Raise the redirect from a former path of a repository to its new path."""
        if registry.renamed and exchange.method in ("GET", "HEAD"):
            raw = str(exchange.environ.get("RAW_URI", exchange.path)).partition("?")[0]
            raw += f"?{exchange.query}" if exchange.query else ""
            location = routing.new_location(exchange.path, raw, registry, principal)
            if location is not None:
                raise RefusedError(
                    HTTPStatus.FOUND,
                    f"This repository has another name now: {location}",
                    (("Location", location),),
                )

    def _page(
        self,
        exchange: Exchange,
        catalogue: Catalogue,
        route: routing.Index | None,
        principal: Principal | None,
    ) -> Iterable[bytes]:
        """Answer a request that is not about a repository; raises RefusedError."""
        path = exchange.path
        if path == "/robots.txt":
            exchange.entry["command"] = "robots"
            return self._responses.send(exchange, HTTPStatus.OK, (headers.PLAIN_TEXT,), _ROBOTS)
        if isinstance(route, routing.Index):
            return self._listing.index(exchange, catalogue, route.folder, principal)
        if listing.is_api(path):
            return self._listing.api(exchange, catalogue, principal)
        if path == "/login" and principal is not None:
            exchange.entry["command"] = "login"
            # Relative, since a client chooses its Host header.
            final = (headers.PLAIN_TEXT, ("Location", "/"))
            return self._responses.send(exchange, HTTPStatus.SEE_OTHER, final, b"")
        if self._sign_in.is_on and principal is None:
            raise self._sign_in.not_found()
        raise not_found()

    def can_compute(self) -> bool:
        """Whether this process can start renderers; without them it answers only from memory."""
        return self._rendering.is_alive()

    def health(self) -> worker_health.Health:
        """The health of this process, looked up now."""
        # Checks come every few seconds, with and without other requests.
        self._rendering.end_idle()
        readable = self._readability.look(self._registry.current())
        return worker_health.assess(
            readable,
            is_draining=worker_health.is_draining(self._settings.drain, now=time.time()),
            has_renderers=self.can_compute(),
            mirror_problem=worker_health.mirror_problem_of(self._settings.mirror_state),
            spool_problem=worker_health.spool_problem_of(
                self._settings.spool, least_bytes=self._settings.spool_free_bytes
            ),
            load=self._rendering.load(),
        )

    def _healthz(self, exchange: Exchange) -> Iterable[bytes]:
        exchange.entry["command"] = "healthz"
        status, document = self.health()
        final = (headers.JSON, headers.KEEP_NOWHERE)
        return self._responses.send(exchange, status, final, json.dumps(document).encode() + b"\n")


def _forget_missing(
    known: opened_repositories.Repositories,
    readability: worker_health.Readability,
    registry: Registry,
) -> None:
    """Forget the repositories that are no longer in the registry."""
    known.forget_except(registry.repositories)
    readability.forget()


def create(environment: Mapping[str, str] | None = None) -> Application:
    """Make the application from environment variables (see `hgfleet.web.http.settings`)."""
    return Application(from_environment(os.environ if environment is None else environment))


def __getattr__(name: str) -> Any:
    """Create `application` on first use, so that importing this module starts nothing."""
    if name == "application":
        made = create()
        globals()["application"] = made
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Requests into a repository: from the cache of answers, else from hgweb.

hgweb sees an environment that is built from the few inputs its answers depend on
(`request.Inputs`). The same values, with the identity, the settings and the fingerprint of
the repository and the generation of the configuration, are the key of the stored answer, so no
answer depends on a value outside its key.
"""

from __future__ import annotations

import os
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from hgfleet.web.engine import cache, hgweb
from hgfleet.web.engine.execution import Execution
from hgfleet.web.engine.opened_repositories import AwayError
from hgfleet.web.engine.places import place_of
from hgfleet.web.http import feeds
from hgfleet.web.http.exchange import bad, method_not_allowed
from hgfleet.web.http.journal import described, report
from hgfleet.web.rendering import budgets, slots
from hgfleet.web.rendering.budgets import Kind
from hgfleet.web.rendering.lease import ArgumentsError, DisconnectedError, LimitError
from hgfleet.web.requests import addresses
from hgfleet.web.requests.parked import Parked
from hgfleet.web.requests.request import Inputs, take_arguments, understand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hgfleet.hg.fingerprint import Fingerprint
    from hgfleet.registry.model.registry import Repository
    from hgfleet.web.engine.opened_repositories import Repositories, Served
    from hgfleet.web.http.exchange import Environ, Exchange
    from hgfleet.web.http.routing import InRepository
    from hgfleet.web.http.settings import Settings
    from hgfleet.web.rendering.computed_answers import Rendering
    from hgfleet.web.requests.request import Request
    from hgfleet.web.requests.responses import Responses

LARGEST_ANSWER: Final = 1024 * 1024
"""Answers above this are never stored (bytes)."""

HELD: Final = 65535
"""Bytes of a data stream that are held back: a small answer is sent when it is whole."""

LARGEST_DISCARD: Final = 64 * 1024 * 1024
"""Bytes of a refused push that are read before the answer: a client sends all, then reads.

nginx refuses pushes without letting their bodies in; this limit covers every other way in.
"""

_LOGGED_FOR_ALL: Final = ("command", "batch")
_PUSH_REFUSED: Final = "this address is for reading; a push goes over SSH"


class RepositoryRequests:
    """Answers requests into repositories. Safe in threads."""

    def __init__(
        self,
        settings: Settings,
        repositories: Repositories,
        rendering: Rendering,
        responses: Responses,
    ) -> None:
        self._settings = settings
        self._rendering = rendering
        self._repositories = repositories
        self._responses = responses
        self._parked = Parked(settings.mirror_state)
        self.answers = cache.AnswerCache(settings.cache_bytes, LARGEST_ANSWER)

    def answer(self, exchange: Exchange, route: InRepository) -> Iterable[bytes]:
        """Answer a request; raises RefusedError and UnavailableRepositoryError.

        The folder's identity is compared and the fingerprint is read before hgweb runs. A stored
        answer has both in its key, so it is never older than the repository. An answer is stored
        only if the fingerprint is the same after hgweb ran. Answers about private repositories are
        neither looked up nor stored. An answer that is not stored may depend on the client, so only
        then hgweb gets the client's address.
        """
        path, identity = route.repository.path, route.repository.identity
        exchange.entry["repository"] = path
        if exchange.method not in ("GET", "HEAD", "POST"):
            raise method_not_allowed()
        if exchange.method == "POST":
            take_arguments(exchange)
        rest, exchange.query = addresses.served(route.rest, exchange.query)
        route = replace(route, rest=rest)
        if self._parked.has(identity):
            raise AwayError(f"{path}: parked by the applier", is_parked=True)
        self._repositories.check(path, identity)
        generation = self._repositories.check_configuration()
        fingerprint = self._repositories.fingerprint(path)
        inputs = Inputs.of(exchange, route, exchange.base_url(self._settings.public_url))
        key = (identity, place_of(route.repository).key, inputs, fingerprint, generation)
        # An answer about a private repository is computed each time and stored nowhere.
        is_public = route.repository.is_public
        if is_public:
            stored = self.answers.get(key)
            if stored is not None:
                exchange.entry.update(stored.log, cache="hit")
                return self._responses.send_answer(exchange, stored)
        environ = inputs.environ()
        request = understand(exchange, route, environ)
        if request.is_push:
            return self._refuse_push(exchange, route.repository)
        is_storable = is_public and request.is_storable
        if is_storable:
            exchange.entry["cache"] = "miss"
        else:
            # Such an answer may depend on the client (the order of clone bundles).
            environ["REMOTE_ADDR"] = exchange.client
            environ["HTTP_USER_AGENT"] = str(exchange.environ.get("HTTP_USER_AGENT", ""))[:256]
            # Extensions put fields there; for a renderer they are notes.
            environ["hgfleet.entry"] = exchange.entry
        try:
            done = self._run(exchange, request, environ, route.repository, fingerprint)
        except slots.BusyError as problem:
            exchange.entry["refused"] = "share"
            return self._refuse(exchange, str(problem))
        if not isinstance(done, cache.Answer):
            return done
        if is_storable and self._is_current(path, fingerprint):
            log: dict[str, object] = {
                name: exchange.entry[name] for name in _LOGGED_FOR_ALL if name in exchange.entry
            }
            self.answers.put(key, replace(done, log=log))
        return self._responses.send_answer(exchange, done)

    def _run(
        self,
        exchange: Exchange,
        request: Request,
        environ: Environ,
        repository: Repository,
        fingerprint: Fingerprint,
    ) -> cache.Answer | Iterable[bytes]:
        """Run hgweb; return a complete answer, or the body of a response that has begun."""
        if request.kind is None:
            served = self._repositories.acquire(place_of(repository), fingerprint)
            execution = Execution(served, self._hand_back)
        elif request.kind is Kind.STREAM:
            execution = self._rendering.stream(exchange, repository, fingerprint)
        else:
            execution = self._rendering.execution(exchange, request.kind, repository, fingerprint)
        try:
            if request.is_archive:
                if self._responses.write_archive(exchange, execution, environ):
                    return []
            else:
                most = HELD if request.is_stream else budgets.LARGEST_PAGE
                is_whole = execution.collect(environ, most)
                # Some files of `.hg` are read by their paths, and the repository may have been
                # moved since.
                self._repositories.check(repository.path, repository.identity)
                if not is_whole:
                    if request.kind is not None and execution.is_page():
                        raise LimitError(f"a page of more than {budgets.LARGEST_PAGE} bytes")
                    return self._responses.stream(exchange, execution)
            answer = self._clean(execution.answer())
        except Exception as problem:
            execution.close()
            if exchange.is_started:
                raise
            if request.kind is Kind.STREAM and _is_limit(problem):
                limits = budgets.budget(self._settings, Kind.STREAM)
                return self._refuse(exchange, budgets.stream_exceeded(limits))
            self._rendering.explain(exchange, environ, request.kind, problem)
            cause = _wrong_arguments(problem, request)
            if not cause:
                raise
            # A single line, not a traceback: clients decide how often this is written.
            report("arguments", cause[:500], exchange.identity)
            raise bad("This request makes no sense for this repository.") from problem
        execution.close()
        return answer

    def _hand_back(self, served: Served, *, is_whole: bool) -> None:
        """Keep an hgweb object for later, unless its answer failed or broke off."""
        if is_whole:
            self._repositories.release(served)

    def _is_current(self, path: str, fingerprint: Fingerprint) -> bool:
        """Whether the repository has certainly not changed since its fingerprint was read."""
        return fingerprint.is_settled() and self._repositories.fingerprint(path) == fingerprint

    def _clean(self, answer: cache.Answer) -> cache.Answer:
        """Remove what XML forbids from a feed, and this host's paths from an error.

        hgweb passes on Mercurial's own message, with the path of a file.
        """
        parts = feeds.as_xml(dict(answer.headers).get("Content-Type", ""), answer.parts)
        if answer.status >= 400:
            root = os.fsencode(self._settings.root) + b"/"
            parts = tuple(part.replace(root, b"") for part in parts)
        return replace(answer, parts=parts)

    def _refuse_push(self, exchange: Exchange, repository: Repository) -> Iterable[bytes]:
        """Name the address for pushes."""
        _discard(exchange.environ)
        where = self._settings.ssh_url
        exchange.entry["refused"] = "push"
        return self._refuse(
            exchange, _PUSH_REFUSED + (f": hg push {where}/{repository.path}" if where else "")
        )

    def _refuse(self, exchange: Exchange, sentence: str) -> Iterable[bytes]:
        """Refuse a wire command in the form that makes hg print the sentence and fail."""
        return self._responses.tell_hg(exchange, sentence, HTTPStatus.OK)


def _is_limit(problem: Exception) -> bool:
    """Whether a renderer has reached a limit, and its client still waits for an answer."""
    return isinstance(problem, LimitError) and not isinstance(problem, DisconnectedError)


def _wrong_arguments(problem: Exception, request: Request) -> str:
    """Describe an exception that the request's arguments caused; "" for every other.

    An exception of a renderer is recognised by its class. An exception of this process about a
    renderer is a defect here, and not the client's.
    """
    if request.kind is not None:
        return str(problem) if isinstance(problem, ArgumentsError) else ""
    return described(problem) if hgweb.is_about_arguments(problem) else ""


def _discard(environ: Environ) -> None:
    source = environ.get("wsgi.input")
    left = LARGEST_DISCARD
    while source is not None and left > 0:
        piece = source.read(min(65536, left))
        if not piece:
            return
        left -= len(piece)

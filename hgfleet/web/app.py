"""The WSGI application: `gunicorn hgfleet.web.app:application`.

A request goes: registry (re-read when its file changed), route, state of the repository (stat of a
few files), then the answer stored for exactly this request and state, or hgweb. hgweb sees an
environment that is built here from the few inputs its answers depend on; the same values are the
key of the stored answer, so an answer cannot depend on anything that the key leaves out.

Only GET and HEAD, and POST where a client sends the arguments of a reading command in the body.
Pushing is refused with a sentence that says where to push. /healthz says 200 while this process can
serve, 503 while it cannot, and 404 while it should get no new clients (HAProxy's
`disable-on-404`): that is while the drain file exists.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import sys
import threading
import time
import traceback
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import RegistryError
from hgfleet.hg.fingerprint import CHANGELOG
from hgfleet.registry import user_repositories
from hgfleet.registry.permissions import may_read
from hgfleet.web import access_log, cache, headers, pages, repositories, routing, signin
from hgfleet.web.execution import Execution
from hgfleet.web.request import (
    Exchange,
    Inputs,
    RefusedError,
    bad,
    client_address,
    is_wire,
    method_not_allowed,
    not_found,
    understand,
)
from hgfleet.web.settings import Settings, from_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from hgfleet.core.principal import Principal
    from hgfleet.registry.model import Registry, Repository
    from hgfleet.web.headers import Headers

    Environ = dict[str, Any]
    StartResponse = Callable[..., Any]

LARGEST_ANSWER: Final = 1024 * 1024
"""Answers above this are streamed and never stored (bytes)."""

LONGEST_PATH: Final = 4096
LONGEST_QUERY: Final = 16384
"""Characters. Arguments of the wire protocol come in headers, so queries are short."""

LARGEST_DISCARD: Final = 64 * 1024 * 1024
"""How much of a refused push is read before the answer (bytes): a client sends all, then reads.

nginx in front refuses pushes without letting their bodies in; this is for everything else.
"""

HEALTH_S: Final = 1.0
"""For how long an answer about the repositories' health is reused (seconds)."""

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")
_LOGGED_FOR_ALL: Final = ("command", "batch")
_PUSH_REFUSED: Final = "this address is for reading; a push goes over SSH"
_ROBOTS: Final = b"""User-agent: *
Disallow: /*/annotate
Disallow: /*/archive
Disallow: /*/comparison
Disallow: /*/diff
Disallow: /*/filelog
Disallow: /*/log
Disallow: /*/raw-
Disallow: /*?
"""


class Application:
    """The web part of one process. Safe in threads."""

    def __init__(self, settings: Settings) -> None:
        """Load what can be loaded now; what is missing yet is looked for at each request."""
        self._settings = settings
        self._log = access_log.AccessLog(settings.access_log)
        self._repositories = repositories.Repositories(settings.root)
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._answers = cache.AnswerCache(settings.cache_bytes, LARGEST_ANSWER)
        self._sign_in = signin.SignIn(settings)
        self._registry: Registry | None = None
        self._registry_stamp: tuple[int, ...] | None = None
        self._registry_lock = threading.Lock()
        self._health: tuple[float, tuple[str, ...]] | None = None
        try:
            self._repositories.check_configuration()
            self._repositories.warm()
        except Exception:
            # Told, and not fatal: a corrected hgrc is noticed by the next request.
            _tell("configuration", traceback.format_exc())
        if self._current_registry() is None:
            self._load_registry(None)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request; nothing that a client sends makes this raise."""
        exchange = Exchange(
            environ=environ,
            method=environ.get("REQUEST_METHOD", "GET"),
            path=environ.get("PATH_INFO", ""),
            query=environ.get("QUERY_STRING", ""),
            started=time.perf_counter(),
            identity=environ.get("HTTP_X_REQUEST_ID", "")[:64] or self._new_identity(),
            entry={"cache": "off"},
        )
        try:
            return self._answer(exchange, start_response)
        except RefusedError as refusal:
            return self._refuse(exchange, start_response, refusal)
        except repositories.UnavailableRepositoryError as problem:
            _tell("unavailable", str(problem), exchange.identity)
            return self._refuse(
                exchange,
                start_response,
                RefusedError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "This repository cannot be read here right now; try again in a minute.",
                    (("Retry-After", "60"),),
                ),
            )
        except Exception:
            if exchange.is_started:
                raise
            _tell("error", traceback.format_exc(), exchange.identity)
            return self._refuse(
                exchange,
                start_response,
                RefusedError(
                    HTTPStatus.INTERNAL_SERVER_ERROR,
                    "Something went wrong on this server. "
                    f"Its operators find the reason as {exchange.identity}.",
                ),
            )

    def _new_identity(self) -> str:
        """Name a request that nginx has not named."""
        return f"{self._process}-{next(self._numbers):x}"

    # Where a request goes

    def _answer(self, exchange: Exchange, start_response: StartResponse) -> Iterable[bytes]:
        path = exchange.path
        if path == "/healthz":
            return self._healthz(exchange, start_response)
        if len(path) > LONGEST_PATH or len(exchange.query) > LONGEST_QUERY:
            raise RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, "This address is too long.")
        registry = self._current_registry()
        if registry is None:
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "This server does not know its repositories yet; try again in a minute.",
                (("Retry-After", "60"),),
            )
        # First as for everybody: what is public is served without a look at who asks.
        route = routing.resolve(path, registry)
        principal = None
        if not isinstance(route, routing.InRepository):
            principal = self._sign_in.principal(exchange)
            if principal is not None:
                route = routing.resolve(path, registry, principal)
        if isinstance(route, routing.InRepository):
            raw = str(exchange.environ.get("RAW_URI", path))
            if raw.startswith("/") and not routing.is_canonical(raw, route):
                raise not_found()
            return self._repository(exchange, start_response, route)
        if (
            self._sign_in.is_on
            and principal is None
            and (path == "/login" or is_wire(exchange.query))
        ):
            raise self._sign_in.refused(exchange)
        if exchange.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if path == "/robots.txt":
            exchange.entry["command"] = "robots"
            return self._send(
                exchange, start_response, HTTPStatus.OK, (headers.PLAIN_TEXT,), _ROBOTS
            )
        if isinstance(route, routing.Index):
            return self._index(exchange, start_response, registry, route.folder, principal)
        if path == "/api/repositories" or path.startswith("/api/repositories/"):
            return self._api(exchange, start_response, registry, principal)
        if path == "/login" and principal is not None:
            exchange.entry["command"] = "login"
            final = (headers.PLAIN_TEXT, ("Location", f"{self._base_url(exchange.environ)}/"))
            return self._send(exchange, start_response, HTTPStatus.SEE_OTHER, final, b"")
        if self._sign_in.is_on and principal is None:
            raise self._sign_in.not_found()
        raise not_found()

    def _current_registry(self) -> Registry | None:
        """The registry as its files are now; the last good one while they make no sense."""
        stamp = _stamp(self._settings.registry)
        if not stamp:
            return self._registry
        stamp += _stamp(self._settings.dynamic)
        if stamp != self._registry_stamp:
            with self._registry_lock:
                if stamp != self._registry_stamp:
                    self._load_registry(stamp)
        return self._registry

    def _load_registry(self, stamp: tuple[int, ...] | None) -> None:
        try:
            registry = user_repositories.load_effective(
                self._settings.registry,
                self._settings.dynamic,
                lambda problem: _tell("registry", problem),
            )
        except RegistryError as problem:
            _tell("registry", str(problem))
        else:
            self._registry = registry
            self._repositories.forget_except(registry.repositories)
            self._health = None
        self._registry_stamp = stamp

    # Pages about the service

    def _healthz(self, exchange: Exchange, start_response: StartResponse) -> Iterable[bytes]:
        exchange.entry["command"] = "healthz"
        registry = self._current_registry()
        status = HTTPStatus.OK
        document: dict[str, object] = {}
        if registry is None:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            document["problem"] = "no registry"
        else:
            unreadable = len(self._unreadable(registry))
            public = sum(entry.is_public for entry in registry.repositories.values())
            document.update(repositories=public, unreadable=unreadable)
            if unreadable and unreadable == public:
                status = HTTPStatus.SERVICE_UNAVAILABLE
                document["problem"] = "no repository can be read"
        if status is HTTPStatus.OK and self._settings.drain.exists():
            status = HTTPStatus.NOT_FOUND
            document["problem"] = "draining"
        document = {"status": "ok" if status is HTTPStatus.OK else "failing", **document}
        return self._send(
            exchange,
            start_response,
            status,
            (headers.JSON, headers.KEEP_NOWHERE),
            json.dumps(document).encode() + b"\n",
        )

    def _unreadable(self, registry: Registry) -> tuple[str, ...]:
        """Public repositories that cannot be read.

        One of them does not make this server sick (if it were broken everywhere, all mirrors would
        leave the proxy at once); that all of them are does.
        """
        now = time.monotonic()
        before = self._health
        if before is not None and now - before[0] < HEALTH_S:
            return before[1]
        found = tuple(
            path
            for path, repository in registry.repositories.items()
            if repository.is_public and not self._repositories.is_readable(path)
        )
        if found and (before is None or found != before[1]):
            _tell("unreadable", " ".join(found[:20]))
        self._health = (now, found)
        return found

    def _rows(
        self, registry: Registry, folder: str, principal: Principal | None
    ) -> list[pages.Row]:
        changed: dict[str, int | None] = {}
        for path, repository in registry.repositories.items():
            if may_read(repository, principal):
                changelog = self._repositories.state(path).signatures[CHANGELOG]
                changed[path] = changelog[2] // 1_000_000_000 if changelog else None
        return pages.rows(registry, folder, changed, principal)

    def _index(
        self,
        exchange: Exchange,
        start_response: StartResponse,
        registry: Registry,
        folder: str,
        principal: Principal | None,
    ) -> Iterable[bytes]:
        exchange.entry["command"] = "index"
        body = pages.index_html(
            self._settings.title,
            self._base_url(exchange.environ),
            self._settings.ssh_url,
            folder,
            registry,
            self._rows(registry, folder, principal),
            principal.name if principal else "" if self._sign_in.is_on else None,
        )
        final = (
            headers.HTML,
            ("Content-Security-Policy", pages.CONTENT_SECURITY_POLICY),
            headers.REVALIDATE,
            *self._vary,
            *headers.FOR_PAGES,
        )
        tag = headers.etag(body)
        return self._send(exchange, start_response, HTTPStatus.OK, final, body, tag)

    @property
    def _vary(self) -> Headers:
        """For a list that is another one for those who sign in."""
        return (headers.DEPENDS_ON_WHO,) if self._sign_in.is_on else ()

    def _api(
        self,
        exchange: Exchange,
        start_response: StartResponse,
        registry: Registry,
        principal: Principal | None,
    ) -> Iterable[bytes]:
        exchange.entry["command"] = "api"
        folder = exchange.path.removeprefix("/api/repositories").strip("/")
        listed = self._rows(registry, folder, principal)
        if folder and not listed:
            raise not_found()
        body = pages.index_json(
            self._base_url(exchange.environ), self._settings.ssh_url, registry, listed
        )
        final = (headers.JSON, headers.REVALIDATE, *self._vary)
        tag = headers.etag(body)
        return self._send(exchange, start_response, HTTPStatus.OK, final, body, tag)

    # Repositories

    def _repository(
        self, exchange: Exchange, start_response: StartResponse, route: routing.InRepository
    ) -> Iterable[bytes]:
        path = route.repository.path
        exchange.entry["repository"] = path
        if exchange.method not in ("GET", "HEAD", "POST"):
            raise method_not_allowed()
        generation = self._repositories.check_configuration()
        state = self._repositories.state(path)
        inputs = Inputs.of(exchange, route, self._base_url(exchange.environ))
        key = (inputs, state, generation)
        # What not everybody may read is worked out anew each time, and kept nowhere.
        is_public = route.repository.is_public
        if is_public and exchange.method != "POST":
            stored = self._answers.get(key)
            if stored is not None:
                exchange.entry.update(stored.log, cache="hit")
                return self._send_answer(exchange, start_response, stored)
        environ = inputs.environ(exchange.method)
        request = understand(exchange, route, environ)
        if request.is_push:
            return self._refuse_push(exchange, start_response, route.repository)
        is_storable = is_public and request.is_storable
        if is_storable:
            exchange.entry["cache"] = "miss"
        else:
            # What such an answer holds may depend on who asks (the order of clone bundles).
            environ["REMOTE_ADDR"] = client_address(exchange.environ)
            # For an answer that waits for its turn (hgext/admission.py): is the client there?
            environ["hgfleet.connection"] = exchange.environ.get("gunicorn.socket")
            environ["hgfleet.entry"] = exchange.entry
        execution = Execution(self._repositories.acquire(path, state), self._repositories.release)
        try:
            if request.is_archive:
                if self._write_archive(exchange, start_response, execution, environ):
                    return []
            elif not execution.collect(environ, 0 if request.is_stream else LARGEST_ANSWER):
                return self._stream(exchange, start_response, execution)
            answer = self._without_paths(execution.answer())
        except Exception as problem:
            execution.close()
            if exchange.is_started or not repositories.is_about_arguments(problem):
                raise
            # One line, not a traceback: strangers decide how often this is written.
            where = traceback.extract_tb(problem.__traceback__)[-1]
            cause = f"{type(problem).__name__}: {problem} ({where.filename}:{where.lineno})"
            _tell("arguments", cause[:500], exchange.identity)
            raise bad("This request makes no sense for this repository.") from problem
        execution.close()
        if is_storable and state.is_settled() and self._repositories.state(path) == state:
            log: dict[str, object] = {
                name: exchange.entry[name] for name in _LOGGED_FOR_ALL if name in exchange.entry
            }
            self._answers.put(key, replace(answer, log=log))
        return self._send_answer(exchange, start_response, answer)

    def _without_paths(self, answer: cache.Answer) -> cache.Answer:
        """Take this host's paths out of an error: hgweb passes on what Mercurial says."""
        if answer.status < 400:
            return answer
        root = os.fsencode(self._settings.root) + b"/"
        return replace(answer, parts=tuple(part.replace(root, b"") for part in answer.parts))

    def _base_url(self, environ: Environ) -> str:
        if self._settings.public_url:
            return self._settings.public_url
        scheme = "https" if environ.get("wsgi.url_scheme") == "https" else "http"
        host = str(environ.get("HTTP_HOST", ""))
        return f"{scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"

    def _refuse_push(
        self, exchange: Exchange, start_response: StartResponse, repository: Repository
    ) -> Iterable[bytes]:
        """Say where to push, in the form that makes `hg push` print it and fail."""
        _discard(exchange.environ)
        where = self._settings.ssh_url
        sentence = _PUSH_REFUSED + (f": hg push {where}/{repository.path}" if where else "") + "\n"
        exchange.entry["refused"] = "push"
        final = (("Content-Type", "application/hg-error"), headers.KEEP_NOWHERE)
        return self._send(exchange, start_response, HTTPStatus.OK, final, sentence.encode())

    # Sending

    def _send_answer(
        self, exchange: Exchange, start_response: StartResponse, answer: cache.Answer
    ) -> Iterable[bytes]:
        final = answer.headers
        body = answer.parts[0]
        if answer.has_nonce:
            nonce = secrets.token_urlsafe(16)
            body = nonce.encode().join(answer.parts)
            policy = repositories.CONTENT_SECURITY_POLICY.replace("%nonce%", nonce)
            final = (*final, ("Content-Security-Policy", policy))
        status = HTTPStatus(answer.status)
        return self._send(exchange, start_response, status, final, body, answer.etag)

    def _send(
        self,
        exchange: Exchange,
        start_response: StartResponse,
        status: HTTPStatus,
        final: Headers,
        body: bytes,
        tag: str = "",
    ) -> Iterable[bytes]:
        """Send a complete response and log it."""
        condition = str(exchange.environ.get("HTTP_IF_NONE_MATCH", ""))
        if exchange.is_personal:
            tag = ""
        if tag:
            final = (*final, ("ETag", tag))
        if tag and condition and headers.etag_matches(condition, tag):
            status = HTTPStatus.NOT_MODIFIED
            final = tuple(item for item in final if item[0] != "Content-Type")
            body = b""
        else:
            final = (*final, ("Content-Length", str(len(body))))
        self._start(exchange, start_response, status, final)
        sent = b"" if exchange.is_head else body
        self._record(exchange, status, len(sent))
        return [sent] if sent else []

    def _stream(
        self, exchange: Exchange, start_response: StartResponse, execution: Execution
    ) -> Iterable[bytes]:
        """Pass on what hgweb goes on producing."""
        self._start(exchange, start_response, execution.status, execution.streamed_headers())
        if exchange.is_head:
            execution.close()
            self._record(exchange, execution.status, 0)
            return []

        def done(sent: int, problem: str) -> None:
            execution.close()
            if problem:
                _tell("stream", problem, exchange.identity)
            self._record(exchange, execution.status, sent, aborted=bool(problem))

        return _Stream(execution.stream(), done)

    def _write_archive(
        self,
        exchange: Exchange,
        start_response: StartResponse,
        execution: Execution,
        environ: Environ,
    ) -> bool:
        """Let hgweb write an archive; False: it said something else, or nothing (to a HEAD)."""
        sent = 0
        if exchange.is_head:
            environ["REQUEST_METHOD"] = "HEAD"

        def begin(status: HTTPStatus, final: Headers) -> Callable[[bytes], object]:
            write = self._start(exchange, start_response, status, final)

            def counting(data: bytes) -> object:
                nonlocal sent
                sent += len(data)
                return write(data)

            return counting

        try:
            started = execution.write_through(environ, begin)
        except Exception:
            if exchange.is_started:
                _tell("stream", traceback.format_exc(), exchange.identity)
                self._record(exchange, execution.status, sent, aborted=True)
            raise
        if not started and execution.is_silent:
            # hgweb says nothing at all to a HEAD.
            final = (("Content-Type", "application/octet-stream"), headers.REVALIDATE)
            self._start(exchange, start_response, HTTPStatus.OK, final)
            started = True
        if started:
            execution.close()
            self._record(exchange, execution.status, sent)
        return started

    def _start(
        self, exchange: Exchange, start_response: StartResponse, status: HTTPStatus, final: Headers
    ) -> Callable[[bytes], object]:
        exchange.is_started = True
        if exchange.is_personal:
            final = headers.personal(final)
        write: Callable[[bytes], object] = start_response(
            f"{status.value} {status.phrase}", [*final, *headers.ALWAYS]
        )
        return write

    def _refuse(
        self, exchange: Exchange, start_response: StartResponse, refusal: RefusedError
    ) -> Iterable[bytes]:
        if "text/html" in str(exchange.environ.get("HTTP_ACCEPT", "")):
            body = pages.error_html(self._settings.title, refusal.status.phrase, refusal.sentence)
            final: Headers = (
                headers.HTML,
                ("Content-Security-Policy", pages.CONTENT_SECURITY_POLICY),
                *headers.FOR_PAGES,
            )
        else:
            body = refusal.sentence.encode() + b"\n"
            final = (headers.PLAIN_TEXT,)
        final = (*final, *refusal.headers, headers.KEEP_NOWHERE)
        return self._send(exchange, start_response, refusal.status, final, body)

    def _record(
        self, exchange: Exchange, status: HTTPStatus, sent: int, *, aborted: bool = False
    ) -> None:
        """Write the line of one request: body in bytes, duration in seconds."""
        self._log.write(
            {
                "event": "request",
                "id": exchange.identity,
                "client": client_address(exchange.environ),
                "method": exchange.method[:16],
                "path": exchange.path[:256],
                **exchange.entry,
                "status": status.value,
                "bytes": sent,
                "duration": round(time.perf_counter() - exchange.started, 6),
                **({"aborted": True} if aborted else {}),
                "agent": str(exchange.environ.get("HTTP_USER_AGENT", ""))[:128],
            }
        )


class _Stream:
    """The iterable of a streamed response; closed before its first piece, it ends cleanly too."""

    def __init__(self, pieces: Iterator[bytes], done: Callable[[int, str], None]) -> None:
        self._pieces = pieces
        self._done: Callable[[int, str], None] | None = done
        self._sent = 0
        self._problem = "the client went away"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._problem = ""
            raise
        except Exception:
            self._problem = traceback.format_exc()
            raise
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        """Called by the server at the end, whatever the end was."""
        done, self._done = self._done, None
        if done is not None:
            done(self._sent, self._problem)


def _discard(environ: Environ) -> None:
    source = environ.get("wsgi.input")
    left = LARGEST_DISCARD
    while source is not None and left > 0:
        piece = source.read(min(65536, left))
        if not piece:
            return
        left -= len(piece)


def _stamp(file: Path) -> tuple[int, ...]:
    """What changes when a file does; nothing if it is not there."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _tell(event: str, message: str, identity: str = "") -> None:
    """Write to standard error, the journal of the service; one event a line."""
    record = {"event": event, **({"id": identity} if identity else {}), "message": message}
    print(json.dumps(record), file=sys.stderr, flush=True)


def create(environment: Mapping[str, str] | None = None) -> Application:
    """Make the application from environment variables (see `hgfleet.web.settings`)."""
    return Application(from_environment(os.environ if environment is None else environment))


def __getattr__(name: str) -> Any:
    """Make `application` on first use, so that importing this module starts nothing."""
    if name == "application":
        made = create()
        globals()["application"] = made
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

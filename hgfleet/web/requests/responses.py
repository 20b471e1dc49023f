"""Responses: every way in which an exchange ends, each counted, with its line in the access log."""

from __future__ import annotations

import errno
import secrets
import time
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from hgfleet.web.engine import hgweb
from hgfleet.web.engine.frames import BrokenError
from hgfleet.web.http import headers, pages, request_counts
from hgfleet.web.http.journal import described, report
from hgfleet.web.rendering.lease import (
    DisconnectedError,
    LimitError,
    RefusedAnswerError,
    RenderingError,
)
from hgfleet.web.requests.request import is_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hgfleet.web.engine.cache import Answer
    from hgfleet.web.engine.execution import Execution
    from hgfleet.web.http.access_log import AccessLog
    from hgfleet.web.http.exchange import Environ, Exchange, RefusedError
    from hgfleet.web.http.headers import Headers
    from hgfleet.web.http.request_counts import Counting


EXPECTED: Final = (LimitError, RenderingError, RefusedAnswerError, BrokenError)
"""Exceptions about a renderer, which a line describes completely."""


ACTED_ON: Final = frozenset(
    {
        HTTPStatus.FOUND,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Statuses of refusals that a client or proxy acts on without the sentence."""


class BrokenOffError(ConnectionResetError):
    """An answer broke off after its first byte; gunicorn closes the connection without a word."""

    def __init__(self) -> None:
        super().__init__(errno.ECONNRESET, "the answer broke off")


def _reason(problem: Exception) -> str:
    if isinstance(problem, OSError | DisconnectedError):
        # This process opens no files of a renderer, so an OSError here is about the client's
        # socket.
        return "client disconnected"
    if isinstance(problem, LimitError):
        return f"the request passed its budget ({problem})"
    return str(problem) if isinstance(problem, EXPECTED) else described(problem)


def _is_final(refusal: RefusedError) -> bool:
    """Whether the user of the client has to read a refusal, since no program acts on its status.

    A proxy asks another mirror after 404, and after 503 with the time of a new attempt. hg asks its
    user after 401, and follows a redirect. Programs wait after 429.
    """
    if refusal.status is HTTPStatus.SERVICE_UNAVAILABLE:
        return "Retry-After" not in dict(refusal.headers)
    return refusal.status not in ACTED_ON


class Responses:
    """Sends and logs. Safe in threads."""

    def __init__(self, title: str, log: AccessLog, counting: Counting) -> None:
        """`title` is the name of the site, for error pages."""
        self._title = title
        self._log = log
        self._counting = counting

    def send(
        self, exchange: Exchange, status: HTTPStatus, final: Headers, body: bytes, tag: str = ""
    ) -> Iterable[bytes]:
        """Send a complete response; `tag` is its entity tag, "" for none."""
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
        self._start(exchange, status, final)
        sent = b"" if exchange.is_head else body
        self._record(exchange, status, len(sent))
        return [sent] if sent else []

    def send_answer(self, exchange: Exchange, answer: Answer) -> Iterable[bytes]:
        """Send an answer of hgweb, with a fresh nonce if its page has scripts."""
        final = answer.headers
        body = answer.parts[0]
        if answer.has_nonce:
            nonce = secrets.token_urlsafe(16)
            body = nonce.encode().join(answer.parts)
            policy = hgweb.CONTENT_SECURITY_POLICY.replace("%nonce%", nonce)
            final = (*final, ("Content-Security-Policy", policy))
        return self.send(exchange, HTTPStatus(answer.status), final, body, answer.etag)

    def refuse(self, exchange: Exchange, refusal: RefusedError) -> Iterable[bytes]:
        """Send a refusal: a page for a browser, else plain text, or the form that hg prints."""
        if is_command(exchange.query) and _is_final(refusal):
            exchange.entry.setdefault("refused", refusal.status.phrase.lower())
            return self.tell_hg(exchange, refusal.sentence, refusal.status)
        if "text/html" in str(exchange.environ.get("HTTP_ACCEPT", "")):
            body = pages.error_html(self._title, refusal.status.phrase, refusal.sentence)
            final: Headers = (
                headers.HTML,
                ("Content-Security-Policy", pages.CONTENT_SECURITY_POLICY),
                *headers.FOR_PAGES,
            )
        else:
            body = refusal.sentence.encode() + b"\n"
            final = (headers.PLAIN_TEXT,)
        final = (*final, *refusal.headers, headers.KEEP_NOWHERE)
        return self.send(exchange, refusal.status, final, body)

    def tell_hg(self, exchange: Exchange, sentence: str, status: HTTPStatus) -> Iterable[bytes]:
        """Send a refusal in the form that makes hg print the sentence and fail.

        hg reads it only from an answer with status 200. The log and the metrics have `status`.
        """
        body = f"{sentence}\n".encode()
        final = (("Content-Type", "application/hg-error"), headers.KEEP_NOWHERE)
        self._start(exchange, HTTPStatus.OK, (*final, ("Content-Length", str(len(body)))))
        sent = b"" if exchange.is_head else body
        self._record(exchange, status, len(sent))
        return [sent] if sent else []

    def stream(self, exchange: Exchange, execution: Execution) -> Iterable[bytes]:
        """Pass on the rest of an answer while hgweb produces it."""
        self._start(exchange, execution.status, execution.streamed_headers())
        if exchange.is_head:
            execution.close()
            self._record(exchange, execution.status, 0)
            return []

        def done(sent: int, problem: str) -> None:
            execution.close()
            if problem:
                report("stream", problem, exchange.identity)
            self._record(exchange, execution.status, sent, aborted=bool(problem))

        return _Stream(execution.stream(), done)

    def write_archive(self, exchange: Exchange, execution: Execution, environ: Environ) -> bool:
        """Let hgweb write an archive to the server.

        False: hgweb wrote nothing, and its answer is in `execution`.
        """
        sent = 0
        if exchange.is_head:
            environ["REQUEST_METHOD"] = "HEAD"

        def begin(status: HTTPStatus, final: Headers) -> Callable[[bytes], object]:
            write = self._start(exchange, status, final)

            def counting(data: bytes) -> object:
                nonlocal sent
                sent += len(data)
                return write(data)

            return counting

        try:
            started = execution.write_through(environ, begin)
        except Exception as problem:
            if not exchange.is_started:
                raise
            report("stream", _reason(problem), exchange.identity)
            self._record(exchange, execution.status, sent, aborted=True)
            raise BrokenOffError from problem
        if not started and execution.is_silent:
            # hgweb says nothing at all to a HEAD.
            final = (("Content-Type", "application/octet-stream"), headers.REVALIDATE)
            self._start(exchange, HTTPStatus.OK, final)
            started = True
        if started:
            execution.close()
            self._record(exchange, execution.status, sent)
        return started

    def _start(
        self, exchange: Exchange, status: HTTPStatus, final: Headers
    ) -> Callable[[bytes], object]:
        exchange.is_started = True
        if exchange.is_personal:
            final = headers.personal(final)
        write: Callable[[bytes], object] = exchange.start_response(
            f"{status.value} {status.phrase}", [*final, *headers.ALWAYS]
        )
        return write

    def _record(
        self, exchange: Exchange, status: HTTPStatus, sent: int, *, aborted: bool = False
    ) -> None:
        """Count a request, and write its line: body in bytes, duration in seconds."""
        seconds = time.perf_counter() - exchange.started
        self._counting.add(request_counts.counts(exchange.entry, status.value, sent, seconds))
        self._log.write(
            {
                "event": "request",
                "id": exchange.identity,
                "client": exchange.client,
                "method": exchange.method[:16],
                "path": exchange.path[:256],
                **exchange.entry,
                "status": status.value,
                "bytes": sent,
                "duration": round(seconds, 6),
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
        self._problem = "client disconnected"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._problem = ""
            raise
        except EXPECTED as problem:
            # A single line, not a traceback: clients decide how often this is written.
            self._problem = _reason(problem)
            if isinstance(problem, LimitError | RenderingError) and problem.is_told:
                # hg reads an error out of a complete response only.
                raise StopIteration from problem
            raise BrokenOffError from problem
        except Exception:
            self._problem = traceback.format_exc()
            raise
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        """Called by the server once, after the last piece or after a failure."""
        done, self._done = self._done, None
        if done is not None:
            done(self._sent, self._problem)

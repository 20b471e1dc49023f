"""An HTTP request with its log entry, and the refusals that end it without hgweb."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgfleet.auth import protocol
    from hgfleet.web.http.headers import Headers

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:[0-9]{1,5})?")


class RefusedError(Exception):
    """A request that gets an answer without hgweb: a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, extra: Headers = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = extra


@dataclass(slots=True)
class Exchange:
    """A request, the way to answer it, and its line of the access log.

    `started` is the reading of time.perf_counter at its arrival (seconds).
    """

    environ: Environ
    start_response: StartResponse
    method: str
    path: str
    query: str
    started: float
    identity: str
    entry: dict[str, object] = field(default_factory=dict)
    is_started: bool = False
    """Whether the status line has been sent."""
    is_personal: bool = False
    """Whether the answer is for this client only."""
    arguments: str | None = None
    """Arguments of a wire command out of the body of a POST; None if they are in headers."""
    signed_in: protocol.Question | None = None
    """The question to which the person of the request was the answer."""
    may_go_on: Callable[[], bool] = lambda: True
    """Whether the permission that let the request in still holds; for code that has waited."""

    @property
    def is_head(self) -> bool:
        """Whether the client wants no body."""
        return self.method == "HEAD"

    @property
    def client(self) -> str:
        """The client's address: nginx sets X-Real-IP, and only nginx can reach the socket."""
        return str(self.environ.get("HTTP_X_REAL_IP") or self.environ.get("REMOTE_ADDR", ""))[:64]

    def base_url(self, public_url: str) -> str:
        """The configured address of this site, else the address that the request names."""
        if public_url:
            return public_url
        scheme = "https" if self.environ.get("wsgi.url_scheme") == "https" else "http"
        host = str(self.environ.get("HTTP_HOST", ""))
        return f"{scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


def bad(sentence: str) -> RefusedError:
    """400, with the mistake in the request."""
    return RefusedError(HTTPStatus.BAD_REQUEST, sentence)


def not_found() -> RefusedError:
    """404, in the same words for a missing and for a hidden path."""
    return RefusedError(HTTPStatus.NOT_FOUND, "There is no such page or repository here.")


def method_not_allowed() -> RefusedError:
    """405, with the methods that are allowed."""
    return RefusedError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "This server answers GET and HEAD.",
        (("Allow", "GET, HEAD"),),
    )


def unavailable(sentence: str) -> RefusedError:
    """503; the client may try again in a minute."""
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, sentence, (("Retry-After", "60"),))

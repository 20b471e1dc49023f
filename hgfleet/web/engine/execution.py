"""A run of hgweb, its answer collected or passed on piece by piece.

An answer that is small enough is collected before anything is sent: it gets a Content-Length, it
can be stored, and an exception in the middle of a template becomes a clean error. Data of the wire
protocol is passed on as it comes.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from hgfleet.web.engine import cache, hgweb
from hgfleet.web.http import headers, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hgfleet.web.engine.opened_repositories import Served
    from hgfleet.web.http.exchange import Environ, StartResponse

    Write = Callable[[bytes], object]

    class HandBack(Protocol):
        """Takes an hgweb object back; an object whose answer is not whole has to be dropped."""

        def __call__(self, served: Served, /, *, is_whole: bool) -> None:
            """Take it back."""


_NONCE = re.compile(r"'nonce-([^']+)'")
_KEPT: Final = frozenset({"content-disposition", "content-type", "last-modified", "location"})


class Execution:
    """Runs hgweb once and hands the object back at the end, also after a failure."""

    def __init__(self, served: Served, hand_back: HandBack) -> None:
        self._served: Served | None = served
        self._hand_back = hand_back
        self._source: Iterable[bytes] | None = None
        self._raw_headers: list[tuple[str, str]] = []
        self._head = b""
        self._rest: Iterator[bytes] | None = None
        self.status = HTTPStatus.OK
        self.is_silent = True
        self._is_whole = False

    def collect(self, environ: Environ, most: int) -> bool:
        """Run until hgweb is done (True) or more than `most` bytes have come (False)."""
        assert self._served is not None
        self._source = self._served.application(environ, self._take_status)
        pieces = iter(self._source)
        collected: list[bytes] = []
        length = 0
        for piece in pieces:
            collected.append(piece)
            length += len(piece)
            if length > most:
                self._rest = pieces
                break
        self._head = b"".join(collected)
        self._is_whole = self._rest is None
        return self._is_whole

    def answer(self) -> cache.Answer:
        """The collected answer, cut where its nonce stands."""
        final, nonce = self._final_headers()
        parts: tuple[bytes, ...] = (self._head,)
        tag = ""
        if nonce:
            parts = tuple(self._head.split(nonce.encode()))
        elif self.status is HTTPStatus.OK and not headers.is_wire(dict(final)["Content-Type"]):
            tag = headers.etag(self._head)
        return cache.Answer(self.status.value, final, parts, has_nonce=bool(nonce), etag=tag)

    def is_page(self) -> bool:
        """Whether a browser runs scripts in the answer that has begun."""
        raw = {name.lower(): value for name, value in self._raw_headers}
        return headers.is_page(raw.get("content-type", ""))

    def streamed_headers(self) -> headers.Headers:
        """The headers of an answer that is passed on."""
        final, nonce = self._final_headers()
        if nonce:
            policy = hgweb.CONTENT_SECURITY_POLICY.replace("%nonce%", nonce)
            final = (*final, ("Content-Security-Policy", policy))
        return final

    def stream(self) -> Iterator[bytes]:
        """The collected part of the answer, then the rest."""
        assert self._rest is not None
        head, self._head = self._head, b""
        yield head
        yield from self._rest
        self._is_whole = True

    def write_through(self, environ: Environ, start_response: StartResponse) -> bool:
        """Let hgweb write to the server itself, as it does for archives.

        False: it wrote nothing, and `answer` has its answer.
        """
        assert self._served is not None
        started = False

        def take(status: str, raw_headers: list[tuple[str, str]], exc_info: object = None) -> Write:
            self._take_status(status, raw_headers, exc_info)
            writer: list[Write] = []

            def write(data: bytes) -> object:
                nonlocal started
                if not writer:
                    started = True
                    writer.append(start_response(self.status, self.streamed_headers()))
                return writer[0](data)

            return write

        self._source = self._served.application(environ, take)
        self._head = b"".join(self._source)
        self._is_whole = True
        return started

    def close(self) -> None:
        """Hand the hgweb object back; more than once is fine."""
        if self._served is not None:
            close = getattr(self._source, "close", None)
            served, self._served = self._served, None
            try:
                if close is not None:
                    close()
            finally:
                self._hand_back(served, is_whole=self._is_whole)

    def _take_status(
        self, status: str, raw_headers: list[tuple[str, str]], exc_info: object = None
    ) -> Write:
        del exc_info
        self.is_silent = False
        # hgweb puts messages into the status line; a client gets the standard phrase.
        self.status = HTTPStatus(int(status.split(" ", 1)[0]))
        self._raw_headers = raw_headers

        def write(data: bytes) -> object:
            raise RuntimeError(f"hgweb wrote {len(data)} bytes past the answer that it returned")

        return write

    def _final_headers(self) -> tuple[headers.Headers, str]:
        """The headers for the client, and for a page the nonce of its scripts."""
        raw = {name.lower(): value for name, value in self._raw_headers}
        content_type = raw.setdefault("content-type", "application/octet-stream")
        final = tuple((name.title(), raw[name]) for name in sorted(_KEPT & raw.keys()))
        if headers.is_wire(content_type):
            return (*final, headers.KEEP_NOWHERE), ""
        if headers.is_page(content_type):
            policy = raw.get("content-security-policy", "")
            if policy == pages.CONTENT_SECURITY_POLICY:
                own = ("Content-Security-Policy", policy)
                return (*final, headers.REVALIDATE, *headers.FOR_PAGES, own), ""
            nonce = _NONCE.search(policy)
            if nonce is None:
                raise RuntimeError("hgweb made a page without Content-Security-Policy")
            return (*final, headers.REVALIDATE, *headers.FOR_PAGES), nonce[1]
        return (*final, headers.REVALIDATE, *headers.FOR_FILES), ""

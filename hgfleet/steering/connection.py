"""HTTP connection to an endpoint, kept between probes, with a time limit for a whole probe."""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.steering.order import Endpoint
    from hgfleet.steering.settings import Config


LOOK_UP_SECONDS: Final = 60.0
"""The age at which a connection is closed, so that the endpoint's name is looked up again: the
clients that come now go to its new address, while the old one may still answer."""


class EndpointError(Exception):
    """The endpoint fails for any object."""


class NoAnswerError(EndpointError):
    """The endpoint accepted a connection and gave no complete answer to one request.

    The endpoint may be silent, or the disk below a single object (`Prober` asks another object).
    """


@dataclass
class Connection:
    """A connection to an endpoint; the server may close it between probes."""

    endpoint: Endpoint
    config: Config
    _connection: http.client.HTTPConnection | None = None
    _context: tuple[tuple[int, ...], ssl.SSLContext] | None = None
    _deadline: float = 0.0
    _limit: float = 0.0
    _opened: float = 0.0

    def start(self, share: float = 1.0) -> None:
        """Begin a probe: all requests until the next start have `timeout_seconds` together.

        `share` is the part of this time that the probe may take.
        """
        now = time.monotonic()
        self._limit = share * self.config.timeout_seconds
        self._deadline = now + self._limit
        if now - self._opened > LOOK_UP_SECONDS:
            self.close()

    def request(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request and return the response, unread.

        Raises NoAnswerError, or EndpointError where the endpoint accepts no connection.
        """
        parts = urlsplit(url)
        is_connected = False
        for is_fresh in (False, True):
            # The server may have closed a kept connection: the second try opens a new connection.
            if is_fresh or self._connection is None:
                self.close()
                self._connection = self._open()
            try:
                self._connection.timeout = self._left()
                if self._connection.sock is None:
                    is_connected = False
                    self._connection.connect()
                    self._opened = time.monotonic()
                is_connected = True
                self._connection.sock.settimeout(self._left())
                # For a private store the query is the signature.
                target = f"{parts.path}?{parts.query}" if parts.query else parts.path
                self._connection.request(method, target, headers=dict(headers))
                return self._connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                problem = error
                self.close()
        raise (NoAnswerError if is_connected else EndpointError)(_reason(problem))

    def read(self, response: http.client.HTTPResponse, most: int) -> bytes:
        """Read up to `most` bytes within the time of the probe. Raises NoAnswerError."""
        got = bytearray()
        try:
            while len(got) < most:
                if self._connection is not None and self._connection.sock is not None:
                    self._connection.sock.settimeout(self._left())
                # read1 waits for the network once, so the time limit is checked after each wait.
                piece = response.read1(most - len(got))
                if not piece:
                    break
                got += piece
                self._left()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswerError(f"after {len(got):,} bytes: {_reason(error)}") from error
        if response.length == 0:
            response.read()  # no bytes left; the call frees the connection in http.client
        if not response.isclosed():
            self.close()
        return bytes(got)

    def close(self) -> None:
        """Close the connection; the next request opens a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not done after {self._limit:g} s")
        return left

    def _open(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.endpoint.url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port)
        return http.client.HTTPSConnection(parts.hostname, parts.port, context=self._trust())

    def _trust(self) -> ssl.SSLContext:
        """Return the settings of TLS, read again where the file of certificates has changed.

        Reading the system's certificates takes some 20 ms of CPU, more than the rest of a
        connection.
        """
        try:
            status = self.config.ca.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._context is None or self._context[0] != stamp:
                context = ssl.create_default_context(cafile=str(self.config.ca))
                self._context = (stamp, context)
        except OSError as error:
            raise EndpointError(f"cannot read the certificates: {error}") from error
        return self._context[1]


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return str(error) if error.args and "not done" in str(error) else "no answer in time"
    return str(error) or type(error).__name__

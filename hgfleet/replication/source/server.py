"""HTTPS server of the source: mutual TLS with the certificates of the site's hosts.

A client is the host that its certificate names; only the mirrors of the settings are accepted. Each
request is a line in the journal:

    event=source client=hgweb1 request=/v1/log?path=a/b&after=3 status=200 bytes=512 duration_s=0.1
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt
from hgfleet.replication.protocol.certificates import Certificates
from hgfleet.replication.source.answers import Source
from hgfleet.replication.source.requests import MAX_BODY, RefusedError, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.answers import Answer

MOST_CONNECTIONS: Final = 64
"""Most connections at the same time; each has a thread, and a mirror uses a few."""

HANDSHAKE_S: Final = 5.0
IDLE_S: Final = 30.0
"""Seconds without a byte in either direction after which a connection ends."""

LONGEST_S: Final = 3600.0
"""Most seconds of an answer, for a mirror that reads a byte now and then."""


def names_of(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the DNS names in a verified certificate, as `SSLSocket.getpeercert` has it."""
    names = (certificate or {}).get("subjectAltName", ())
    return frozenset(value for kind, value in names if kind == "DNS")


def client_of(certificate: Mapping[str, Any] | None, mirrors: Collection[str]) -> str:
    """Return the mirror that a certificate belongs to; raises RefusedError for other hosts."""
    names = names_of(certificate)
    for mirror in mirrors:
        if mirror in names:
            return mirror
    raise RefusedError(
        403,
        f"{', '.join(sorted(names)) or 'a certificate without a name'} is no mirror of this "
        "service; the inventory's group `mirrors` names them",
    )


class SourceServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The listening server; `serve_forever` and `shutdown` are those of socketserver."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], settings: Settings, log: logfmt.Log) -> None:
        self.source = Source(settings, self.complain)
        self.settings, self.log = settings, log
        self.certificates = Certificates(settings, ssl.Purpose.CLIENT_AUTH)
        # A wrong certificate ends the program at its start, not at its first connection.
        self.certificates.context()
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def complain(self, sentence: str) -> None:
        """Log a problem of a repository or the registry."""
        self.log(logfmt.line("source-problem", error=sentence))

    def server_bind(self) -> None:
        """Bind to IPv6 and to IPv4 if the address is an IPv6 address."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, or end it if there are too many."""
        if not self._places.acquire(blocking=False):
            self.log(logfmt.line("source-busy", connections=MOST_CONNECTIONS))
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection: the handshake is done in the thread, so that it delays no other."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Make the handshake, and answer."""
        request.settimeout(HANDSHAKE_S)
        with self.certificates.context().wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log a connection that ended early; print a traceback only for defects."""
        problem = sys.exc_info()[1]
        if isinstance(problem, OSError):
            self.log(logfmt.line("source-connection", client=client_address[0], error=problem))
        else:
            self.log(logfmt.line("source-defect", error=problem))
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    connection: ssl.SSLSocket

    protocol_version = "HTTP/1.1"
    server_version = "hgfleet-source"
    sys_version = ""
    timeout = IDLE_S
    server: SourceServer

    def do_GET(self) -> None:
        """Answer."""
        self._serve()

    def do_POST(self) -> None:
        """Answer."""
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (http.server's)
        """Log nothing: `_serve` logs each request."""

    def _serve(self) -> None:
        started = time.monotonic()
        status, sent, client, problem = 200, 0, None, None
        self._begun = False
        try:
            # An unread body would be parsed as the next request.
            body = self._body()
            client = client_of(self.connection.getpeercert(), self.server.settings.mirrors)
            answer = self.server.source.answer(parse(self.command, self.path), body)
            sent = self._send(answer, started + LONGEST_S)
        except RefusedError as error:
            status, problem = error.status, str(error)
            self._refuse(error)
        except OSError as error:
            status, problem = 499, f"the connection ended: {error}"
            self.close_connection = True
        finally:
            self.server.log(
                logfmt.line(
                    "source",
                    client=client,
                    address=self.client_address[0],
                    request=self.path,
                    status=status,
                    bytes=sent,
                    duration_s=time.monotonic() - started,
                    error=problem,
                )
            )

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "0")
        is_number = text.isascii() and text.isdigit() and len(text) < 12
        if "Transfer-Encoding" in self.headers or not is_number or int(text) > MAX_BODY:
            self.close_connection = True
            raise RefusedError(413, f"expected a body of at most {MAX_BODY} bytes")
        return self.rfile.read(int(text))

    def _send(self, answer: Answer, until: float) -> int:
        """Send an answer in chunks; if it fails, the last chunk is not sent."""
        sent = 0
        with contextlib.closing(answer.pieces):
            self._begun = True
            self.send_response(200)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in answer.pieces:
                if piece:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    sent += len(piece)
                if time.monotonic() > until:
                    raise RefusedError(408, f"the answer took more than {LONGEST_S:.0f} s")
            self.wfile.write(b"0\r\n\r\n")
        return sent

    def _refuse(self, error: RefusedError) -> None:
        if self._begun:
            # The mirror sees that the answer is not complete.
            self.close_connection = True
            return
        body = f"{error}\n".encode("utf-8", "backslashreplace")
        self.send_response(error.status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if error.allow:
            self.send_header("Allow", error.allow)
        self.end_headers()
        self.wfile.write(body)

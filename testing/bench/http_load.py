"""Load over HTTP: processes that write requests to sockets, read the answers and count them."""

from __future__ import annotations

import hashlib
import multiprocessing
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Endpoint:
    """The destination of requests: a unix socket, or an address of this machine."""

    socket_path: str = ""
    host: str = "localhost"
    port: int = 0
    ca: str = ""
    prefix: str = ""

    def connector(self) -> Callable[[], socket.socket]:
        """Return a function that opens a connection."""
        if self.socket_path:
            path = self.socket_path

            def local() -> socket.socket:
                made = socket.socket(socket.AF_UNIX)
                made.connect(path)
                return made

            return local
        if not self.ca:
            return lambda: socket.create_connection(("127.0.0.1", self.port))
        context = ssl.create_default_context(cafile=self.ca)
        host = self.host

        def secure() -> socket.socket:
            plain = socket.create_connection(("127.0.0.1", self.port))
            return context.wrap_socket(plain, server_hostname=host)

        return secure


@dataclass
class Count:
    """Answers to a client, or to all clients."""

    good: int = 0
    bad: int = 0
    first_problem: str = ""
    slowest: float = 0.0
    digests: set[str] = field(default_factory=set)

    def add(self, other: Count) -> None:
        """Merge another client's count."""
        self.good += other.good
        self.bad += other.bad
        self.first_problem = self.first_problem or other.first_problem
        self.slowest = max(self.slowest, other.slowest)
        self.digests |= other.digests


def exchange(connection: socket.socket, request: bytes) -> tuple[bytes, bytes, bool]:
    """Send a request, read its answer: head, body, and whether the connection may be used again."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(262144)
        if not piece:
            return data, b"", False
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lower = head.lower()
    chunked = b"transfer-encoding: chunked" in lower
    closes = b"connection: close" in lower
    length = -1
    if b"content-length:" in lower:
        length = int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    pieces = [body]
    size = len(body)
    while True:
        if length >= 0 and size >= length:
            break
        if chunked and b"".join(pieces[-2:]).endswith(b"0\r\n\r\n"):
            break
        piece = connection.recv(262144)
        if not piece:
            closes = True
            break
        pieces.append(piece)
        size += len(piece)
    body = b"".join(pieces)
    return head, dechunk(body) if chunked else body, not closes


def exchange_once(connection: socket.socket, request: bytes) -> tuple[bytes, bytes]:
    """Send a request on a connection that the server closes after its answer."""
    connection.sendall(request)
    data = connection.recv(262144)
    while piece := connection.recv(262144):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    if b"\r\nTransfer-Encoding: chunked" in head:
        body = dechunk(body)
    return head, body


def dechunk(body: bytes) -> bytes:
    """Undo the chunked transfer coding."""
    result: list[bytes] = []
    position = 0
    while True:
        end = body.index(b"\r\n", position)
        size = int(body[position:end].split(b";", 1)[0], 16)
        if size == 0:
            return b"".join(result)
        result.append(body[end + 2 : end + 2 + size])
        position = end + 2 + size + 2


def client(
    endpoint: Endpoint,
    target: str,
    keepalive: bool,
    start: float,
    seconds: float,
    results: multiprocessing.SimpleQueue[Count],
) -> None:
    """Send the same request until the time is over, and report."""
    connect = endpoint.connector()
    wanted = "keep-alive" if keepalive else "close"
    request = (
        f"GET {endpoint.prefix}{target} HTTP/1.1\r\nHost: {endpoint.host}\r\n"
        f"User-Agent: mercurial/proto-1.0\r\nAccept: application/mercurial-0.1\r\n"
        f"Connection: {wanted}\r\n\r\n"
    ).encode()
    count = Count()
    known = b""
    connection: socket.socket | None = None
    time.sleep(max(0.0, start - time.time()))
    deadline = start + seconds
    ended = time.time()
    while (began := ended) < deadline:
        problem = ""
        usable = False
        try:
            if connection is None:
                connection = connect()
            if keepalive:
                head, body, usable = exchange(connection, request)
            else:
                head, body = exchange_once(connection, request)
            if head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")):
                if body != known:
                    known = body
                    count.digests.add(hashlib.sha256(body).hexdigest())
            else:
                problem = head.split(b"\r\n", 1)[0].decode("latin-1") or "no answer"
        except (OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            count.bad += 1
            count.first_problem = count.first_problem or problem
        else:
            count.good += 1
        ended = time.time()
        count.slowest = max(count.slowest, ended - began)
        if connection is not None and (problem or not usable):
            connection.close()
            connection = None
    results.put(count)


def load(endpoint: Endpoint, target: str, clients: int, seconds: float, keepalive: bool) -> Count:
    """Run all clients at the same time."""
    results: multiprocessing.SimpleQueue[Count] = multiprocessing.SimpleQueue()
    start = time.time() + 0.3
    processes = [
        multiprocessing.Process(
            target=client, args=(endpoint, target, keepalive, start, seconds, results)
        )
        for _ in range(clients)
    ]
    for process in processes:
        process.start()
    total = Count()
    for _ in processes:
        total.add(results.get())
    for process in processes:
        process.join()
    return total

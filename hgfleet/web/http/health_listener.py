"""Health checks on a socket and in a thread of their own, apart from the threads for clients.

nginx sends /healthz there. A check therefore never waits behind requests: the balancer takes a host
out when it is dead, and not when it has much to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import traceback
from typing import TYPE_CHECKING, Final

from hgfleet.web.http.journal import report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.web.http.worker_health import Health

READ_SECONDS: Final = 0.5
"""For how long a check may take to send its request."""

_BACKLOG: Final = 64


def listen(path: Path) -> socket.socket:
    """Listen at a path, in place of an earlier server."""
    listening = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    # nginx is another user. The answer is public, and a client can do nothing here but connect.
    umask = os.umask(0o111)
    try:
        listening.bind(str(path))
    finally:
        os.umask(umask)
    listening.listen(_BACKLOG)
    return listening


def answer_checks(listening: socket.socket, assess: Callable[[], Health]) -> None:
    """Answer health checks from now on, in a thread that ends with the process."""
    threading.Thread(target=_serve, args=(listening, assess), name="health", daemon=True).start()


def response(health: Health) -> bytes:
    """Return a complete response of HTTP/1.0."""
    body = json.dumps(health.document).encode() + b"\n"
    head = (
        f"HTTP/1.0 {health.status.value} {health.status.phrase}\r\n"
        "Content-Type: application/json\r\nCache-Control: no-store\r\n"
        f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def _serve(listening: socket.socket, assess: Callable[[], Health]) -> None:
    while True:
        try:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(READ_SECONDS)
                _read(connection)
                connection.sendall(response(assess()))
        except TimeoutError:
            pass
        except OSError as problem:
            if listening.fileno() < 0:
                return
            report("health", str(problem))
        except Exception:
            report("health", traceback.format_exc())


def _read(connection: socket.socket) -> bytes:
    """Read a request's head; a close before it is read would reset the connection."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < 65536:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data

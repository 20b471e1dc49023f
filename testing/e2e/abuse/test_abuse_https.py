"""Headers of HTTPS requests that name a person."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from testing.e2e.abuse.witness import Line, Witness
    from testing.e2e.cluster import Cluster

pytestmark = pytest.mark.alone


def basic(text: bytes) -> bytes:
    """Write a name and a password as a header."""
    return b"Authorization: Basic " + base64.b64encode(text)


HEADERS: Final = {
    "no credentials": b"Authorization: Basic",
    "no base64": b"Authorization: Basic %%%///",
    "no colon": basic(b"alice"),
    "no name": basic(b":secret"),
    "no password": basic(b"alice:"),
    "a filter": basic(b"alice)(uid=*:x"),
    "everybody": basic(b"*:*"),
    "a NUL": basic(b"alice\0:x\0"),
    "a line": basic(b"alice\nevent=auth decision=allow:x"),
    "no text": basic(b"\xff\xfe:\xff"),
    "a DN": basic(b"uid=alice,ou=people:x"),
    "another scheme": b"Authorization: Negotiate YIIZ",
    "a bearer": b"Authorization: Bearer " + b"x" * 200,
    "twice": basic(b"alice:x") + b"\r\n" + basic(b"bob:x"),
    "64 KiB": basic(b"alice:" + b"x" * 49152),
    "a name of 4 KiB": basic(b"x" * 4096 + b":x"),
    "2000 headers": b"\r\n".join(b"X-%d: x" % i for i in range(2000)),
    "the name that the proxy gives": b"X-Forwarded-User: alice\r\nX-Remote-User: alice",
    "the name in another way": b"Remote-User: alice\r\nREMOTE_USER: alice",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 5",
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    "a folded header": basic(b"alice:x") + b"\r\n b2Js",
}


PROGRAMS: Final = ("hgfleet-auth", "hgfleet-web", "gunicorn", "nginx", "haproxy")


def test_no_header_opens_what_is_private(cluster: Cluster, witness: Witness) -> None:
    trust = ssl.create_default_context(cafile=cluster.env["HGFLEET_CA_CERT"])

    def check(_: None, lines: list[Line]) -> None:
        assert all(line.text.isprintable() for line in lines), lines
        assert not any("Traceback" in line.text for line in lines), lines

    witness.try_each(HEADERS, lambda header: is_refused(cluster, trust, header), check, PROGRAMS)


def is_refused(cluster: Cluster, trust: ssl.SSLContext, header: bytes) -> None:
    """Request a private repository with a header; fail unless the answer is a clean refusal."""
    where = urlsplit(cluster.url("e2e/private?cmd=heads"))
    request = f"GET {where.path}?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n".encode()
    request += header + b"\r\nConnection: close\r\n\r\n"
    assert where.hostname
    assert where.port

    with (
        socket.create_connection((where.hostname, where.port), timeout=20) as plain,
        trust.wrap_socket(plain, server_hostname=where.hostname) as link,
    ):
        said = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # refused while it was sent
            link.sendall(request + (b"0\r\n\r\n" if b"chunked" in header else b""))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while more := link.recv(65536):
                said += more

    assert re.match(rb"HTTP/1\.[01] 4\d\d ", said), said[:2000]
    assert b"Traceback" not in said

"""A client of a site without an account: HTTPS by address, and hg."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from controller.bootstrap import VENV
from testing.e2e.command import Result, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testing.site.machine import Entrance

SECONDS: Final = 30


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Client:
    """A client that trusts the CAs in a file."""

    trusted: Path

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings that a client of today offers."""
        return ssl.create_default_context(cafile=str(self.trusted))

    def handshake(self, entrance: Entrance, context: ssl.SSLContext) -> ssl.SSLSocket:
        """Return a connection to an entrance, under the name that clients ask for."""
        plain = socket.create_connection((entrance.address, entrance.port), SECONDS)
        return context.wrap_socket(plain, server_hostname=entrance.name)

    def ask(self, entrance: Entrance, path: str, method: str = "GET") -> Answer:
        """Send a request to an entrance; any status is an answer."""
        connection = http.client.HTTPSConnection(entrance.name, timeout=SECONDS)
        connection.sock = self.handshake(entrance, self.context())
        return self._answer(connection, method, path)

    def plain(self, entrance: Entrance, path: str) -> Answer:
        """Send a request without TLS to an entrance."""
        connection = http.client.HTTPConnection(entrance.name, timeout=SECONDS)
        connection.sock = socket.create_connection((entrance.address, entrance.http_port), SECONDS)
        return self._answer(connection, "GET", path)

    def url(self, url: str, method: str) -> Answer:
        """Send a request to a URL, which may be of another server."""
        parts = urlsplit(url)
        assert parts.hostname, url
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=SECONDS, context=self.context()
        )
        return self._answer(connection, method, url.partition(parts.netloc)[2])

    def _answer(self, connection: http.client.HTTPConnection, method: str, path: str) -> Answer:
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read().decode("utf-8", "replace"))
        finally:
            connection.close()

    def json(self, entrance: Entrance, path: str) -> Any:
        """Return the JSON at a path, which must be there."""
        answer = self.ask(entrance, path)
        assert answer.status == 200, (path, answer)
        return json.loads(answer.body)

    def hg(self, *words: str) -> Result:
        """Run hg with no settings of this machine."""
        env = {"PATH": os.environ["PATH"], "HGRCPATH": "", "HGPLAIN": "1"}
        trust = f"web.cacerts={self.trusted}"
        return run([str(VENV / "bin/hg"), "--config", trust, *words], env=env, seconds=600)

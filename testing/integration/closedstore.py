"""A private bucket over HTTP: it has objects for those who have a signature, as any S3 does."""

from __future__ import annotations

import http.server
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from hgfleet.objectstore.presign import PrivateStore, presign

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "s3cr3t/of+the=reader"


def admits(store: PrivateStore, method: str, path: str) -> bool:
    """Whether a request has a signature of the reader that has not expired; checks like S3."""
    query = parse_qs(urlsplit(path).query)
    if "X-Amz-Signature" not in query:
        return False
    made = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    lifetime = int(query["X-Amz-Expires"][0])
    root = store.url.removesuffix(urlsplit(store.url).path)
    right = presign(root + urlsplit(path).path, store, made, lifetime, method) == root + path
    return right and made <= datetime.now(UTC) <= made + timedelta(seconds=lifetime)


def write_settings(file: Path, store: PrivateStore, lifetime: int = 600) -> None:
    """Write the settings of who signs."""
    names = ("name", "url", "region", "access_key", "secret_key")
    values = [f"{name} = {json.dumps(getattr(store, name))}\n" for name in names]
    file.write_text(f"lifetime = {lifetime}\n[[store]]\n{''.join(values)}")


class ClosedStore:
    """Objects by their path; `asked` has what was asked for, with the status of the answer."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.gone: set[str] = set()
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                data = store.content.get(path)
                status = 404 if data is None else 200
                if path in store.gone or not store.admits(self.command, self.path):
                    status = 403
                store.asked.append((self.command, path, status))
                if data is None or status != 200:
                    self.send_error(status)
                    return
                if "Range" in self.headers:
                    data = data[: int(self.headers["Range"].rpartition("-")[2]) + 1]
                self.send_response(206 if "Range" in self.headers else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_arguments: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self.http.server_port}"
        self.store = PrivateStore("closed", f"{self.root}/closed", "eu-1", "reader", SECRET)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def admits(self, method: str, path: str) -> bool:
        """Whether the request, of this path and query, may be answered."""
        return admits(self.store, method, path)

    def stop(self) -> None:
        """End the server."""
        self.http.shutdown()
        self.http.server_close()

"""A store of bundles over real HTTP: public or private, with faults to choose.

`Bucket` of hgfleet is its other side, that a run writes to: the methods at the end stand in for it.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from hgfleet.bundles.decide.manifest import Entry
from hgfleet.objectstore.bucket import Stored, StoredObject, Upload
from hgfleet.objectstore.presign import PrivateStore, presign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET: Final = "s3cr3t/of+the=reader"
NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)


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


def write_keys(file: Path, *stores: PrivateStore, lifetime: int = 600) -> None:
    """Write the file with the keys that URLs are signed with."""
    text = f"lifetime = {lifetime}\n"
    for store in stores:
        names = ("name", "url", "region", "access_key", "secret_key")
        values = [f"{name} = {json.dumps(getattr(store, name))}\n" for name in names]
        text += f"[[store]]\n{''.join(values)}"
    file.write_text(text)


def flip_bit(data: bytes) -> bytes:
    """Change a bit in the middle of a bundle."""
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


class Store:
    """Objects by their key, below `url`.

    `requests` has all requests (method, path without the query, status) and `signed` tells of each
    whether it had a signature. `reader` is who may read, None of a public store. Faults:

    * `refuse`: raised to a run that lists or uploads.
    * `fault`: the status of each answer, "silent" (no answer) or "slow" (one byte of it).
    * `refused`: "METHOD key" that get 403.
    * `broken`: what a "METHOD key" gets: a status, "silent", "slow" or "page" (200 with a
      page, until a request goes past the cache).
    * `lie`: changes each content; `cut`: the bytes after which an answer ends.
    * `ranges`: whether ranges are served; `delay`: seconds before each answer.
    * `is_open`: the keys that a private store gives to anonymous clients.
    """

    def __init__(self, name: str = "main", *, private: bool = False) -> None:
        self.name = name
        self.content: dict[str, bytes] = {}
        self.modified: dict[str, datetime] = {}
        self.metadata: dict[str, dict[str, str]] = {}
        self.pages: dict[str, bytes] = {}
        self.unfinished: list[Upload] = []
        self.clock = NOW
        self.requests: list[tuple[str, str, int]] = []
        self.signed: list[bool] = []
        self.refreshed = 0
        self.refuse: Exception | None = None
        self.fault = ""
        self.refused: set[str] = set()
        self.broken: dict[str, str] = {}
        self.lie: Callable[[bytes], bytes] = lambda data: data
        self.cut: int | None = None
        self.ranges = True
        self.delay = 0.0
        self.etag = '"1"'
        self.is_open: Callable[[str], bool] = lambda _key: False
        self._stopped = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.root}/{name}"
        self.reader: PrivateStore | None = None
        if private:
            self.reader = PrivateStore(name, self.url, "eu-1", "reader", SECRET)
        # `shutdown` waits for the next poll.
        poll = {"poll_interval": 0.02}
        threading.Thread(target=self._server.serve_forever, kwargs=poll, daemon=True).start()

    def stop(self) -> None:
        """End the server, and the connections that clients keep."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def asked(self, method: str = "") -> list[str]:
        """The requests that were answered with an object, as "METHOD key"."""
        served = [(verb, key) for verb, key, status in self.requests if status == 200]
        return [f"{verb} {key}" for verb, key in served if verb.startswith(method)]

    def put(self, key: str, content: bytes, bundlespec: str = "zstd-v2") -> Entry:
        """Put an object here; return the entry that a manifest has for it."""
        self.content[key] = content
        sha256 = hashlib.sha256(content).hexdigest()
        private = self.reader is not None
        url = f"{self.url}/{key}"
        return Entry(url, bundlespec, sha256, len(content), 3, NOW, private=private)

    def key(self, entry: Entry) -> str:
        """Return the key of a published entry."""
        return entry.url.removeprefix(f"{self.url}/")

    def corrupt(self, entry: Entry) -> None:
        """Flip a bit; no list, no header and no probe shows it."""
        self.content[self.key(entry)] = flip_bit(self.content[self.key(entry)])

    def admits(self, method: str, url: str) -> bool:
        """Whether a URL of this store has a signature of its reader."""
        return self.reader is not None and admits(self.reader, method, url.removeprefix(self.root))

    def status(self, method: str, key: str, path: str) -> int:
        """Decide the status of an answer: 200, or the reason that there is no content."""
        if self.fault.isdigit():
            return int(self.fault)
        if self.broken.get(f"{method} {key}", "").isdigit():
            return int(self.broken[f"{method} {key}"])
        closed = self.reader is not None and not self.is_open(key)
        if f"{method} {key}" in self.refused or (closed and not admits(self.reader, method, path)):
            return 403
        return 200 if key in self.content or key in self.pages else 404

    # -- the methods of Bucket -------------------------------------------------------------------

    def upload(self, key: str, path: Path, sha256: str, metadata: Any) -> bool:
        """Create an object; say whether it is new."""
        assert len(sha256) == 64
        assert set(metadata) == {"bundlespec", "changesets", "made", "required-ram"}
        if self.refuse:
            raise self.refuse
        if key in self.content:
            return False
        self.content[key] = path.read_bytes()
        self.modified[key] = self.clock
        self.metadata[key] = {**metadata, "sha256": sha256}
        return True

    def head(self, key: str) -> Stored | None:
        """Describe an object."""
        if key not in self.content:
            return None
        return Stored(len(self.content[key]), self.modified[key], self.metadata.get(key, {}))

    def put_page(self, key: str, body: bytes, content_type: str, max_age: int) -> bool:
        """Replace a page."""
        assert content_type
        assert max_age <= 3600
        self.pages[key] = body
        return True

    def objects(self, prefix: str) -> list[StoredObject]:
        """List the objects below a prefix."""
        if self.refuse:
            raise self.refuse
        return [
            StoredObject(key, len(data), self.modified[key])
            for key, data in sorted(self.content.items())
            if key.startswith(prefix)
        ]

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """List the unfinished uploads below a prefix."""
        return (upload for upload in self.unfinished if upload.key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        self.content.pop(key, None)
        self.broken.pop(f"GET {key}", None)

    def abort(self, upload: Upload) -> None:
        """Forget an unfinished upload."""
        self.unfinished.remove(upload)


def _handler(store: Store) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Otherwise each content waits for the client's delayed ACK of its headers, 40 ms.
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if store._stopped.is_set():
                self.close_connection = True
                return
            key = urlsplit(self.path).path.removeprefix(f"/{store.name}/")
            time.sleep(store.delay)
            store.refreshed += self.headers["Cache-Control"] == "no-cache"
            status = store.status(self.command, key, self.path)
            store.requests.append((self.command, key, status))
            store.signed.append("X-Amz-Signature=" in self.path)
            if self.headers["Cache-Control"] == "no-cache":
                store.broken = {k: v for k, v in store.broken.items() if v != "page"}
            broken = store.broken.get(f"{self.command} {key}", "")
            if store.fault == "silent":
                self.close_connection = True
            elif broken == "silent":
                store._stopped.wait(20)
                self.close_connection = True
            elif broken == "page":
                self.give(b"<p>closed for the weekend", is_whole=True)
            elif status == 200:
                self.give(store.lie(store.content.get(key, store.pages.get(key, b""))))
            else:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def give(self, data: bytes, *, is_whole: bool = False) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if asked and store.ranges and not is_whole:
                first, last, whole = int(asked[1]), int(asked[2]), len(data)
                data = data[first : last + 1]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", store.etag)
            self.end_headers()
            if self.command != "GET":
                return
            key = urlsplit(self.path).path.removeprefix(f"/{store.name}/")
            if "slow" in (store.fault, store.broken.get(f"GET {key}")):
                self.wfile.write(data[:1])
                self.wfile.flush()
                store._stopped.wait(20)
            else:
                self.wfile.write(data[: store.cut])
                self.close_connection |= store.cut is not None

        def log_message(self, *_arguments: object) -> None: ...

    return Handler

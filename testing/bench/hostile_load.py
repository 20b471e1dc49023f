"""Clients of the bench of hostile requests that run on a host: a witness, and a flood.

    python3 -c SOURCE witness        # asks all the time, and compares each answer with the first
    python3 -c SOURCE flood          # many connections that ask again and again

`hostile_witness.py` starts them on hosts of the cluster, whose addresses have limits. They need the
standard library only. The plan is the first line of the input, in JSON, because it has secrets that
a command line would show to each user of the host:

    {"url": "https://proxy1", "asks": [ASK, ...], "seconds": 30}           of a witness
    {"url": "https://proxy1", "asks": [ASK, ...], "connections": 40}       of a flood
    ASK: {"kind": "page", "path": "healthy/json-log?n={}", "headers": {}}

Each request has a number in the place of `{}`, so that no answer comes from a cache. The client
prints a line when it is ready: the witness has asked for everything once, the flood has its first
answer. The next line of the input starts the witness or ends the flood. The end of the input ends
both: nothing is left on the host when the bench is killed.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import http.client
import itertools
import json
import ssl
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Ask = Mapping[str, Any]
    Reply = tuple[str, str, int]

TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.1
"""Pause of a witness between two requests of a kind, and of a flood after a failed request."""

CHUNK: Final = 1 << 16


def ask(url: str, item: Ask, number: int, read: Callable[[int], None] = lambda _: None) -> Reply:
    """Send a request over a new connection; return status, digest and size of the answer.

    Without a complete answer, the status is the name of the exception. `read` gets the size of each
    part.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    digest = hashlib.sha256()
    size = 0
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        try:
            path = str(item["path"]).replace("{}", str(number))
            connection.request("GET", f"/{path}", headers=dict(item["headers"]))
            answer = connection.getresponse()
            while part := answer.read(CHUNK):
                digest.update(part)
                size += len(part)
                read(len(part))
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__, "", size
    return str(answer.status), digest.hexdigest(), size


class Witness:
    """A well-behaved client; `seconds` and `failed` are by kind of its requests."""

    def __init__(self, url: str, asks: Sequence[Ask]) -> None:
        self._url = url
        self._kinds: dict[str, list[Ask]] = {}
        for item in asks:
            self._kinds.setdefault(item["kind"], []).append(item)
        self._first: dict[str, Reply] = {}
        self.seconds: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        self.wrong: list[str] = []
        self.failed: dict[str, dict[str, int]] = {kind: {} for kind in self._kinds}

    def learn(self) -> None:
        """Request each item once, before the attack; raises SystemExit if there is no answer."""
        for item in (item for asks in self._kinds.values() for item in asks):
            reply = ask(self._url, item, 0)
            if reply[0] != "200":
                raise SystemExit(f"{item['path']}: got {reply[0]}, expected status 200")
            self._first[item["path"]] = reply

    def run(self, is_over: Callable[[], bool], pause: float = PAUSE_S) -> None:
        """Request all kinds at the same time until `is_over`, each at least once."""
        threads = [
            threading.Thread(target=self._run, args=(kind, is_over, pause)) for kind in self._kinds
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, kind: str, is_over: Callable[[], bool], pause: float) -> None:
        asks = self._kinds[kind]
        for number in itertools.count(1):
            item = asks[(number - 1) % len(asks)]
            started = time.perf_counter()
            reply = ask(self._url, item, number)
            self.seconds[kind].append(time.perf_counter() - started)
            if reply[0] != "200":
                failed = self.failed[kind]
                failed[reply[0]] = failed.get(reply[0], 0) + 1
            elif reply != self._first[item["path"]]:
                self.wrong.append(f"{kind} {number} {item['path']}: other bytes")
            if is_over():
                return
            time.sleep(pause)

    def told(self) -> dict[str, Any]:
        """Return the result."""
        return {"seconds": self.seconds, "wrong": self.wrong, "failed": self.failed}


class Flood:
    """Connections that send the next request as soon as they have an answer."""

    def __init__(self, url: str, asks: Sequence[Ask], connections: int) -> None:
        self._url = url
        self._asks = asks
        self._connections = connections
        self._lock = threading.Lock()
        self._answers: collections.Counter[str] = collections.Counter()
        self._bytes = 0
        self._begun = threading.Event()
        self._over = threading.Event()

    def start(self) -> None:
        """Start, and wait for the first bytes of an answer, or the end of a request."""
        for number in range(self._connections):
            threading.Thread(target=self._run, args=(number,), daemon=True).start()
        self._begun.wait()

    def _run(self, thread: int) -> None:
        for turn in itertools.count():
            if self._over.is_set():
                return
            item = self._asks[(thread + turn) % len(self._asks)]
            status = ask(self._url, item, thread + turn * self._connections, self._read)[0]
            with self._lock:
                self._answers[f"{item['kind']}: {status}"] += 1
            self._begun.set()
            if not status.isdigit():
                # If the proxy accepts no connections, retries would take all of this host's time.
                self._over.wait(PAUSE_S)

    def _read(self, size: int) -> None:
        with self._lock:
            self._bytes += size
        self._begun.set()

    def told(self) -> dict[str, Any]:
        """End, and return the result; requests under way are not in it."""
        self._over.set()
        with self._lock:
            return {"answers": dict(self._answers), "bytes": self._bytes}


def main() -> None:
    """Run the client that the argument names."""
    plan = json.loads(sys.stdin.readline())
    if sys.argv[1] == "witness":
        witness = Witness(plan["url"], plan["asks"])
        witness.learn()
        print("ready", flush=True)
        if sys.stdin.readline():
            until = time.monotonic() + plan["seconds"]
            witness.run(lambda: time.monotonic() >= until)
            print(json.dumps(witness.told()), flush=True)
        return
    flood = Flood(plan["url"], plan["asks"], plan["connections"])
    flood.start()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(flood.told()), flush=True)


if __name__ == "__main__":
    main()

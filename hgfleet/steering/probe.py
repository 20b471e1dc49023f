"""The prober: asks every endpoint all the time, and every object that a manifest names in turn.

What a probe finds is told apart into what concerns the endpoint (no connection, too slow, 403, 5xx)
and what concerns one object (gone, of another length, replaced). One request for the headers tells
all of it but wrong bytes of the right length; an object whose entity tag or time of change is
another than when it was first seen has been replaced, which nothing of ours ever does, and counts
as dead. Beside that a piece of an object is read in each round: an endpoint that answers and then
sends a byte a second is as dead as one that is silent.
"""

from __future__ import annotations

import http.client
import os
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hgfleet.bundles import signing
from hgfleet.bundles.manifest import SUFFIX, parse
from hgfleet.errors import ConfigurationError
from hgfleet.steering import health
from hgfleet.steering.health import Condition, Health
from hgfleet.steering.order import Endpoint, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hgfleet.bundles.manifest import Entry
    from hgfleet.steering.config import Config

PIECE: Final = 65536
"""Bytes of an object that each round reads from each endpoint."""

ROUNDS: Final = 3
"""Rounds in which every object is asked for once, unless there are more than `MOST` a round."""

MOST: Final = 200
"""Objects asked for in one round at one endpoint; about 2 ms each within a region."""


class EndpointProblem(Exception):  # noqa: N818  (not an error of ours)
    """The endpoint does not answer as it should, whatever it was asked for."""


class ObjectProblem(Exception):  # noqa: N818
    """The endpoint answers, but not with the object that the manifest names."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What an endpoint said of an object when it was first asked."""

    etag: str
    modified: str


def classify(status: int, length: int, expected: int, seen: Seen, before: Seen | None) -> None:
    """Judge the headers of an object; raises EndpointProblem or ObjectProblem.

    403 is the endpoint's: it is what a bucket answers that has lost its policy, and an object that
    is gone answers 404 wherever everybody may read.
    """
    if status in (404, 410):
        raise ObjectProblem(f"the answer is {status}")
    if status not in (200, 206):
        raise EndpointProblem(f"the answer is {status}")
    if length != expected:
        raise ObjectProblem(f"it has {length:,} bytes instead of {expected:,}")
    if before is not None and before != seen:
        raise ObjectProblem("it was replaced after it had been verified")


def batch(objects: Sequence[Entry], turn: int) -> Sequence[Entry]:
    """Return the objects of one round: a third of them, or `MOST` if that is less, in rotation."""
    count = min(MOST, -(-len(objects) // ROUNDS))
    start = turn * count % max(1, len(objects))
    return [objects[(start + i) % len(objects)] for i in range(count)]


@dataclass
class Connection:
    """A connection to one endpoint that is kept between probes, with a time for all of a probe."""

    endpoint: Endpoint
    config: Config
    _connection: http.client.HTTPConnection | None = None
    _deadline: float = 0.0

    def start(self) -> None:
        """Begin a probe: from now on there is `timeout` for everything until the next start."""
        self._deadline = time.monotonic() + self.config.timeout

    def request(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request and return its answer, unread. Raises EndpointProblem."""
        parts = urlsplit(url)
        for is_fresh in (False, True):
            # The other side may have closed a connection that was kept: once more with a new one.
            if is_fresh or self._connection is None:
                self.close()
                self._connection = self._open()
            try:
                self._connection.timeout = self._left()
                if self._connection.sock is not None:
                    self._connection.sock.settimeout(self._left())
                # The query is the signature of what lies in a private store.
                target = f"{parts.path}?{parts.query}" if parts.query else parts.path
                self._connection.request(method, target, headers=dict(headers))
                return self._connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                problem = error
                self.close()
        raise EndpointProblem(_reason(problem))

    def read(self, response: http.client.HTTPResponse, most: int) -> int:
        """Read up to `most` bytes within the time of the probe; return how many came."""
        got = 0
        try:
            while got < most:
                if self._connection is not None and self._connection.sock is not None:
                    self._connection.sock.settimeout(self._left())
                # read1: one wait for the network each, so that the time is looked at in between.
                piece = response.read1(most - got)
                if not piece:
                    break
                got += len(piece)
                self._left()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise EndpointProblem(f"after {got:,} bytes: {_reason(error)}") from error
        if response.length == 0:
            response.read()  # nothing more; it tells http.client that the connection is free again
        if not response.isclosed():
            self.close()
        return got

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not done after {self.config.timeout:g} s")
        return left

    def _open(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.endpoint.url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port)
        context = ssl.create_default_context(cafile=str(self.config.ca))
        return http.client.HTTPSConnection(parts.hostname, parts.port, context=context)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return str(error) if error.args and "not done" in str(error) else "no answer in time"
    return str(error) or type(error).__name__


@dataclass
class Prober:
    """Everything that is known of one endpoint between rounds."""

    endpoint: Endpoint
    config: Config
    condition: Condition = field(default_factory=Condition)
    dead: dict[str, str] = field(default_factory=dict)
    _seen: dict[Entry, Seen] = field(default_factory=dict)
    """By the whole entry: one that is published anew has been verified anew, and so begins anew."""
    _turn: int = 0

    def __post_init__(self) -> None:
        self._connection = Connection(self.endpoint, self.config)

    def round(self, objects: Sequence[Entry]) -> None:
        """Probe once: objects never asked for first, then those whose turn it is."""
        published, urls = set(objects), {entry.url for entry in objects}
        self._seen = {entry: seen for entry, seen in self._seen.items() if entry in published}
        self.dead = {url: problem for url, problem in self.dead.items() if url in urls}
        new = [entry for entry in objects if entry not in self._seen][:MOST]
        turn = [*new, *(batch(objects, self._turn) if objects else ())]
        self._turn += 1
        try:
            alive = None
            for entry in dict.fromkeys(turn):
                if self._object(entry):
                    alive = entry
            if alive is not None:
                self._piece(alive)
            elif not objects:
                self._anything()
        except EndpointProblem as problem:
            self._connection.close()
            self.condition = self.condition.after(str(problem))
        else:
            self.condition = self.condition.after(None)

    def _url(self, entry: Entry, method: str) -> str:
        """What a client would be told; never in a log."""
        if not entry.private:
            return entry.url
        try:
            return signing.load(self.config.signing).sign(entry.url, datetime.now(UTC), method)
        except ConfigurationError as error:
            raise EndpointProblem(str(error)) from error

    def _object(self, entry: Entry) -> bool:
        self._connection.start()
        answer = self._connection.request("HEAD", self._url(entry, "HEAD"), {})
        self._connection.read(answer, 0)
        if answer.status == 403 and entry.private:
            # A key that may read objects and not list them is not told which ones are gone.
            self.dead[entry.url] = "the answer is 403: gone, or the key may not read it"
            return False
        seen = Seen(answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", ""))
        try:
            length = int(answer.headers.get("Content-Length") or -1)
            classify(answer.status, length, entry.size, seen, self._seen.get(entry))
        except ObjectProblem as problem:
            self.dead[entry.url] = str(problem)
            return False
        self._seen.setdefault(entry, seen)
        self.dead.pop(entry.url, None)
        return True

    def _piece(self, entry: Entry) -> None:
        self._connection.start()
        last = min(PIECE, entry.size) - 1
        asked = {"Range": f"bytes=0-{last}"}
        answer = self._connection.request("GET", self._url(entry, "GET"), asked)
        if answer.status != 206:
            raise EndpointProblem(f"the answer to a range is {answer.status}")
        if self._connection.read(answer, last + 1) != last + 1:
            raise EndpointProblem("a range was cut off")

    def _anything(self) -> None:
        self._connection.start()
        answer = self._connection.request("HEAD", f"{self.endpoint.url}/", {})
        self._connection.read(answer, 0)
        if answer.status >= 500:
            raise EndpointProblem(f"the answer is {answer.status}")


class Published:
    """The entries of all manifests, read again only where a manifest has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[tuple[int, int, int], tuple[Entry, ...]]] = {}

    def entries(self) -> list[Entry]:
        """Return what is published now, each URL once."""
        known = {}
        for path in self._files():
            try:
                found = path.stat()
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                before = self._known.get(path)
                if before is not None and before[0] == stamp:
                    known[path] = before
                else:
                    known[path] = (stamp, parse(path.read_text("utf-8", "replace")))
            except FileNotFoundError:
                continue  # withdrawn in this moment
        self._known = known
        unique = {entry.url: entry for _, entries in known.values() for entry in entries}
        return list(unique.values())

    def _files(self) -> Iterator[Path]:
        for place, folders, names in os.walk(self._folder, onerror=_raise):
            # Replaced manifests are in a hidden folder, those on their way are hidden files.
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if name.endswith(SUFFIX) and not name.startswith("."):
                    yield Path(place, name)


def _raise(error: OSError) -> None:
    """What is published and cannot be read would be handed out without ever being probed."""
    if not isinstance(error, FileNotFoundError):
        raise error


def run(config: Config, say: Callable[..., None], is_over: Callable[[float], bool]) -> None:
    """Probe until `is_over(seconds to wait)` says so; `say(event, **fields)` gets what changes."""
    probers = [Prober(endpoint, config) for endpoint in config.endpoints]
    published = Published(config.manifests)
    with ThreadPoolExecutor(max(1, len(probers)), "probe") as pool:
        while True:
            started = time.monotonic()
            shares = share(published.entries(), config.endpoints)
            before = [(prober.condition, prober.dead) for prober in probers]
            list(pool.map(Prober.round, probers, shares))
            for prober, (condition, dead) in zip(probers, before, strict=True):
                _tell_changes(prober, condition, dead, say)
            write(
                config.health,
                Health(
                    time.time(),
                    {prober.endpoint.name: prober.condition for prober in probers},
                    {url: why for prober in probers for url, why in prober.dead.items()},
                ),
            )
            if is_over(max(0.0, config.interval - (time.monotonic() - started))):
                return


def share(entries: Sequence[Entry], endpoints: Sequence[Endpoint]) -> list[list[Entry]]:
    """Give each endpoint, in their order, the entries that lie there."""
    shares: dict[Endpoint, list[Entry]] = {endpoint: [] for endpoint in endpoints}
    for entry in entries:
        if (endpoint := endpoint_of(entry.url, endpoints)) is not None:
            shares[endpoint].append(entry)
    return list(shares.values())


def _tell_changes(
    prober: Prober, before: Condition, was_dead: Mapping[str, str], say: Callable[..., None]
) -> None:
    name, now = prober.endpoint.name, prober.condition
    if now.is_up != before.is_up:
        say(
            "endpoint-up" if now.is_up else "endpoint-down",
            endpoint=name,
            reason=now.problem or None,
        )
    for url in prober.dead.keys() - was_dead.keys():
        say("object-dead", endpoint=name, url=url, reason=prober.dead[url])
    for url in was_dead.keys() - prober.dead.keys():
        say("object-back", endpoint=name, url=url)


def write(path: Path, state: Health) -> None:
    """Replace the state's file; readers see the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(health.dump(state), "utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)

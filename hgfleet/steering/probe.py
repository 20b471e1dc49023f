"""The prober: asks every endpoint all the time, and every object that a manifest names in turn.

What a probe finds is told apart into what concerns the endpoint (no connection, too slow, 5xx, 403
for everything) and what concerns one object (gone, of another length, with other bytes, 403 while
others answer). Each round asks for the headers of some objects and reads on in one of them, so that

- an endpoint that answers and then sends a byte a second is as dead as one that is silent;
- every object is read whole some day, at `read_rate`, and its sha256 compared: a store whose disk
  or cache has turned a bit answers as it always did;
- an object whose headers changed is dead until it has been read again, which then comes first;
- a copy (`Endpoint.origin`) counts from when it has been read, which comes first too.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hgfleet.bundles.manifest import SUFFIX, parse
from hgfleet.core import files
from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore import presign
from hgfleet.steering import health
from hgfleet.steering.health import Condition, Health
from hgfleet.steering.order import Endpoint, copies, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hgfleet.bundles.manifest import Entry
    from hgfleet.steering.config import Config

PIECE: Final = 65536
"""Bytes that every round reads from each endpoint; an endpoint that takes longer is of no use."""

MORE: Final = 1024 * 1024
"""Bytes of each request beyond the first, where a round reads more than a piece."""

ROUNDS: Final = 3
"""Rounds in which every object is asked for once, and read once, unless there is too much."""

MOST: Final = 200
"""Objects asked for in one round at one endpoint; about 2 ms each within a region."""

OTHERS: Final = 10
"""Objects asked for besides, where all that a round asked for were refused."""

REFUSED: Final = "the answer is 403"
"""Of everything, from a bucket that has lost its policy, or that no longer takes the reader's key.

Of one object, where it is gone: whoever may read and not list is told no more, and nobody has to
list bundles (AWS, API reference of GetObject: without s3:ListBucket a missing key is 403
AccessDenied, with it 404)."""


class EndpointError(Exception):
    """The endpoint does not answer as it should, whatever it was asked for."""


class ObjectError(Exception):
    """The endpoint answers, but not with the object that the manifest names."""


@dataclass(frozen=True, slots=True)
class Validators:
    """What tells that an object has been replaced."""

    etag: str
    modified: str


@dataclass
class ObjectState:
    """What is known of one object between rounds.

    `asked` and `compared` are the last rounds in which it answered for its headers, and in which
    all of its content had been read; 0: none yet. `headers` and `content` say what is wrong.
    """

    is_urgent: bool = False
    """To be read before anything else."""
    seen: Validators | None = None
    asked: int = 0
    compared: int = 0
    headers: str = ""
    content: str = ""


@dataclass
class PartialRead:
    """An object that is being read, piece by piece."""

    entry: Entry
    seen: Validators | None = None
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


def classify(status: int, length: int, expected: int) -> None:
    """Judge the headers of an object; raises EndpointError or ObjectError.

    Whose a 403 is, is known when others have answered (`is_closed`).
    """
    if status in (403, 404, 410):
        raise ObjectError(f"the answer is {status}")
    if status not in (200, 206):
        raise EndpointError(f"the answer is {status}")
    if length != expected:
        raise ObjectError(f"it has {length:,} bytes instead of {expected:,}")


def is_closed(answers: Collection[str]) -> bool:
    """Whether 403 is the endpoint's; `answers` is what is wrong with each object, "" for nothing.

    It is an object's as long as another one of the endpoint answers well.
    """
    return REFUSED in answers and "" not in answers


def witnesses(known: Mapping[Entry, ObjectState], asked: Collection[Entry]) -> list[Entry]:
    """Return who can tell whose a 403 is, if all of `asked` were refused.

    Who answered well comes first, and of these who did so last: objects that are gone together
    were put there together, and have their turns together.
    """
    others = [entry for entry in known if entry not in asked]
    return sorted(others, key=lambda e: (bool(known[e].headers), -known[e].asked))[:OTHERS]


def batch(known: Mapping[Entry, ObjectState]) -> list[Entry]:
    """Return the objects of one round: those never asked for, and a third of the others.

    At most `MOST` of each. Whoever has waited longest comes first.
    """
    new = [entry for entry, one in known.items() if not one.asked]
    old = sorted((e for e, one in known.items() if one.asked), key=lambda e: known[e].asked)
    return new[:MOST] + old[: min(MOST, -(-len(old) // ROUNDS))]


def next_to_read(known: Mapping[Entry, ObjectState], turn: int) -> Entry | None:
    """Return the object to read next: the smallest that is urgent, else who has waited longest.

    What does not answer cannot be read, and what was read in this round has had its turn.
    """
    return min(
        (e for e, one in known.items() if one.asked and not one.headers and one.compared < turn),
        key=lambda e: (not known[e].is_urgent, known[e].compared, e.size),
        default=None,
    )


@dataclass
class Connection:
    """A connection to one endpoint that is kept between probes, with a time for all of a probe."""

    endpoint: Endpoint
    config: Config
    _connection: http.client.HTTPConnection | None = None
    _deadline: float = 0.0

    def start(self) -> None:
        """Begin a probe: from now on there is `timeout` for everything until the next start."""
        self._deadline = time.monotonic() + self.config.timeout_seconds

    def request(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request and return its answer, unread. Raises EndpointError."""
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
        raise EndpointError(_reason(problem))

    def read(self, response: http.client.HTTPResponse, most: int) -> bytes:
        """Read up to `most` bytes within the time of the probe; return what came."""
        got = bytearray()
        try:
            while len(got) < most:
                if self._connection is not None and self._connection.sock is not None:
                    self._connection.sock.settimeout(self._left())
                # read1: one wait for the network each, so that the time is looked at in between.
                piece = response.read1(most - len(got))
                if not piece:
                    break
                got += piece
                self._left()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise EndpointError(f"after {len(got):,} bytes: {_reason(error)}") from error
        if response.length == 0:
            response.read()  # nothing more; it tells http.client that the connection is free again
        if not response.isclosed():
            self.close()
        return bytes(got)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not done after {self.config.timeout_seconds:g} s")
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
    read: frozenset[str] = frozenset()
    """URLs of objects whose content was found to be right."""
    _known: dict[Entry, ObjectState] = field(default_factory=dict)
    """By the whole entry: one that is published anew has been verified anew, and so begins anew."""
    _readings: dict[bool, PartialRead] = field(default_factory=dict)
    """One that is urgent, and one that is not and goes on afterwards."""
    _turn: int = 0

    def __post_init__(self) -> None:
        self._connection = Connection(self.endpoint, self.config)

    def round(self, objects: Sequence[Entry]) -> None:
        """Probe once: headers of objects never asked for and of those whose turn it is; content."""
        self._turn += 1
        self._known = {
            entry: self._known.get(entry) or ObjectState(is_urgent=bool(self.endpoint.origin))
            for entry in objects
        }
        try:
            self._ask(time.monotonic() + self.config.interval_seconds)
            self._read(time.monotonic() + self.config.interval_seconds / 2)
            if not objects:
                self._anything()
        except EndpointError as problem:
            self._connection.close()
            self.condition = self.condition.after(str(problem))
        else:
            self.condition = self.condition.after(None)
        known = self._known.items()
        self.dead = {
            e.url: one.headers or one.content for e, one in known if one.headers or one.content
        }
        self.read = frozenset(e.url for e, one in known if one.compared and not one.content)

    def _url(self, entry: Entry, method: str) -> str:
        """What a client would be told; never in a log."""
        if not entry.private:
            return entry.url
        try:
            return presign.load(self.config.signing).sign(entry.url, datetime.now(UTC), method)
        except ConfigurationError as error:
            raise EndpointError(str(error)) from error

    def _ask(self, until: float) -> None:
        """Ask for headers: of this round's objects, and of some others if all say 403."""
        answers: dict[Entry, str] = {}
        for entry in batch(self._known):
            answers[entry] = self._object(entry, self._known[entry])
            if time.monotonic() > until:
                break  # the others come first in the next round
        for entry in witnesses(self._known, answers):
            if not is_closed(answers.values()):
                break
            answers[entry] = self._object(entry, self._known[entry])
            if time.monotonic() > until:
                break
        for entry in answers:
            self._known[entry].asked = self._turn
        self._judge(answers.items())

    def _judge(self, answers: Collection[tuple[Entry, str]]) -> None:
        """Note what is wrong with each object. Raises EndpointError if that is not theirs."""
        if is_closed([problem for _, problem in answers]):
            raise EndpointError(f"{REFUSED}, and no other object answers")
        for entry, problem in answers:
            self._known[entry].headers = problem

    def _object(self, entry: Entry, known: ObjectState) -> str:
        """Ask for the headers of an object, and return what is wrong with it."""
        self._connection.start()
        answer = self._connection.request("HEAD", self._url(entry, "HEAD"), {})
        self._connection.read(answer, 0)
        try:
            classify(answer.status, int(answer.headers.get("Content-Length") or -1), entry.size)
        except ObjectError as problem:
            return str(problem)
        seen = _validators(answer)
        if known.seen not in (None, seen):
            known.is_urgent, known.content = True, "it was replaced, and has not been read since"
        known.seen = seen
        return ""

    def _read(self, until: float) -> None:
        """Read on where the last round ended, at least a piece."""
        total = sum(entry.size for entry in self._known)
        left = int(min(self.config.read_rate * self.config.interval_seconds, -(-total // ROUNDS)))
        answers: list[tuple[Entry, str]] = []
        most = PIECE
        while (reading := self._reading(answers)) is not None:
            known = self._known[reading.entry]
            is_late = time.monotonic() >= until
            if most == MORE and (is_late or (left <= 0 and not known.is_urgent)):
                break
            if most == PIECE and len(answers) > (1 if is_late else OTHERS):
                break
            wanted = most if known.is_urgent else min(most, max(left, PIECE))
            try:
                got = self._piece(reading, min(wanted, reading.entry.size - reading.size))
            except ObjectError as problem:
                answers.append((reading.entry, str(problem)))
                continue
            except EndpointError:
                if most == PIECE:
                    raise
                break  # a piece came in time, and more of it will in the next round
            answers.append((reading.entry, ""))
            left -= 0 if known.is_urgent else got
            most = MORE
        self._judge(answers)

    def _reading(self, answers: Collection[tuple[Entry, str]]) -> PartialRead | None:
        """Return what is to be read on; nothing that could not be read in this round."""
        failed = {entry for entry, problem in answers if problem}
        able = {entry: one for entry, one in self._known.items() if entry not in failed}
        self._readings = {
            is_urgent: reading
            for is_urgent, reading in self._readings.items()
            if (known := able.get(reading.entry)) is not None
            and not known.headers
            and known.is_urgent == is_urgent
        }
        entry = next_to_read(able, self._turn)
        if entry is None:
            return None
        return self._readings.setdefault(able[entry].is_urgent, PartialRead(entry))

    def _piece(self, reading: PartialRead, size: int) -> int:
        """Read some bytes and return how many; compare the digest after the last ones."""
        entry, last = reading.entry, reading.size + size - 1
        self._connection.start()
        asked = {"Range": f"bytes={reading.size}-{last}"}
        if self.endpoint.origin and self._known[entry].content:
            # What the cache has is wrong: it may ask its origin again.
            asked["Cache-Control"] = "no-cache"
        answer = self._connection.request("GET", self._url(entry, "GET"), asked)
        if answer.status in (403, 404, 410, 416):
            self._connection.read(answer, 0)
            raise ObjectError(f"the answer is {answer.status}")
        if answer.status != 206:
            raise EndpointError(f"the answer to a range is {answer.status}")
        got = self._connection.read(answer, size)
        if len(got) != size:
            raise EndpointError("a range was cut off")
        seen = _validators(answer)
        if reading.seen not in (None, seen):
            # Replaced in between: from the beginning.
            self._readings = {k: one for k, one in self._readings.items() if one is not reading}
            return size
        reading.seen = seen
        reading.size += size
        reading.digest.update(got)
        if reading.size == entry.size:
            known = self._known[entry]
            is_right = reading.digest.hexdigest() == entry.sha256
            known.content = "" if is_right else "its content is not what was published"
            known.compared, known.is_urgent = self._turn, False
            self._readings = {k: one for k, one in self._readings.items() if one is not reading}
        return size

    def _anything(self) -> None:
        self._connection.start()
        answer = self._connection.request("HEAD", f"{self.endpoint.url}/", {})
        self._connection.read(answer, 0)
        if answer.status >= 500:
            raise EndpointError(f"the answer is {answer.status}")


def _validators(answer: http.client.HTTPResponse) -> Validators:
    return Validators(answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", ""))


class ManifestWatcher:
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
    published = ManifestWatcher(config.manifests)
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
                    frozenset(u for p in probers if p.endpoint.origin for u in p.read),
                ),
            )
            if is_over(max(0.0, config.interval_seconds - (time.monotonic() - started))):
                return


def share(entries: Sequence[Entry], endpoints: Sequence[Endpoint]) -> list[list[Entry]]:
    """Give each endpoint, in their order, the entries that lie there, and copies of others."""
    shares: dict[Endpoint, list[Entry]] = {endpoint: [] for endpoint in endpoints}
    for entry in entries:
        # A signature is for one host, so what is private has no copies.
        others = [] if entry.private else copies(entry.url, endpoints)
        for url in (entry.url, *others):
            if (endpoint := endpoint_of(url, endpoints)) is not None:
                shares[endpoint].append(replace(entry, url=url))
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
    """Replace the health file atomically."""
    files.replace(path, health.dump(state), durable=False)

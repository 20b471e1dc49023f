"""Prober of one endpoint: requests the headers of its objects and reads their content, in rounds.

An error of the endpoint (no connection, too slow, 5xx, 403 for every object) is told apart from an
error of one object (missing, another length, another content, 403 while other objects answer). Each
round requests the headers of some objects and reads on in one of them:

- An endpoint that answers and then sends a byte a second counts as down, like a silent one.
- Every object is read whole in the course of time, at `read_rate`, and its sha256 is compared. A
  store with a corrupt disk or cache answers with the same headers as before.
- An object with new headers is dead until it has been read again, before all others.
- A copy (`Endpoint.origin`) is advertised only after it has been read; it is read first, too.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore import presign
from hgfleet.steering.connection import Connection, EndpointError
from hgfleet.steering.health import Condition
from hgfleet.steering.selection import (
    OTHERS,
    REFUSED,
    ROUNDS,
    ObjectError,
    ObjectState,
    Validators,
    batch,
    classify,
    is_closed,
    next_to_read,
    witnesses,
)

if TYPE_CHECKING:
    import http.client
    from collections.abc import Collection, Sequence

    from hgfleet.bundles.manifest import Entry
    from hgfleet.steering.config import Config
    from hgfleet.steering.order import Endpoint

PIECE: Final = 65536
"""Bytes that every round reads from each endpoint; a slower endpoint is useless for clones."""

MORE: Final = 1024 * 1024
"""Bytes of each further request, where a round reads more than a piece."""


@dataclass
class PartialRead:
    """An object that is being read, piece by piece."""

    entry: Entry
    seen: Validators | None = None
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


@dataclass
class Prober:
    """One endpoint and its objects between rounds.

    `dead` has the URLs of objects that must not be advertised, with the reasons; `read` the URLs of
    objects whose content was compared and is right.
    """

    endpoint: Endpoint
    config: Config
    condition: Condition = field(default_factory=Condition)
    dead: dict[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    _known: dict[Entry, ObjectState] = field(default_factory=dict)
    """By the whole entry: a new publication of the same URL begins with a new state."""
    _readings: dict[bool, PartialRead] = field(default_factory=dict)
    """The urgent read (True), and the other one, which goes on afterwards."""
    _number: int = 0

    def __post_init__(self) -> None:
        self._connection = Connection(self.endpoint, self.config)

    def round(self, objects: Sequence[Entry]) -> None:
        """Probe once: headers of new objects and of those that are due, and some content."""
        self._number += 1
        self._known = {
            entry: self._known.get(entry) or ObjectState(is_urgent=bool(self.endpoint.origin))
            for entry in objects
        }
        try:
            self._ask(time.monotonic() + self.config.interval_seconds)
            self._read(time.monotonic() + self.config.interval_seconds / 2)
            if not objects:
                self._ask_without_objects()
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
        """Return the URL that a client gets, signed where needed; it must not reach a log."""
        if not entry.private:
            return entry.url
        try:
            return presign.load(self.config.signing).sign(entry.url, datetime.now(UTC), method)
        except ConfigurationError as error:
            raise EndpointError(str(error)) from error

    def _ask(self, until: float) -> None:
        """Request the headers of this round's objects, and of some others if all get a 403."""
        answers: dict[Entry, str] = {}
        for entry in batch(self._known):
            answers[entry] = self._object(entry, self._known[entry])
            if time.monotonic() > until:
                break  # the next round begins with the others
        for entry in witnesses(self._known, answers):
            if not is_closed(answers.values()):
                break
            answers[entry] = self._object(entry, self._known[entry])
            if time.monotonic() > until:
                break
        for entry in answers:
            self._known[entry].asked = self._number
        self._record(answers.items())

    def _record(self, answers: Collection[tuple[Entry, str]]) -> None:
        """Record the problem of each object. Raises EndpointError if all of them are refused."""
        if is_closed([problem for _, problem in answers]):
            raise EndpointError(f"{REFUSED}, and no other object answers")
        for entry, problem in answers:
            self._known[entry].headers = problem

    def _object(self, entry: Entry, known: ObjectState) -> str:
        """Request the headers of an object; return the problem, or ""."""
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
        rate = self.config.read_rate * self.config.interval_seconds
        left = int(min(rate, -(-total // ROUNDS)))
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
                break  # one piece came in time; the next round reads the rest
            answers.append((reading.entry, ""))
            left -= 0 if known.is_urgent else got
            most = MORE
        self._record(answers)

    def _reading(self, answers: Collection[tuple[Entry, str]]) -> PartialRead | None:
        """Return the object to read on, except those that failed in this round."""
        failed = {entry for entry, problem in answers if problem}
        able = {entry: one for entry, one in self._known.items() if entry not in failed}
        self._readings = {
            is_urgent: reading
            for is_urgent, reading in self._readings.items()
            if (known := able.get(reading.entry)) is not None
            and not known.headers
            and known.is_urgent == is_urgent
        }
        entry = next_to_read(able, self._number)
        if entry is None:
            return None
        return self._readings.setdefault(able[entry].is_urgent, PartialRead(entry))

    def _piece(self, reading: PartialRead, size: int) -> int:
        """Read some bytes and return their number; compare the digest after the last ones."""
        entry = reading.entry
        answer = self._range(reading, size)
        got = self._connection.read(answer, size)
        if len(got) != size:
            raise EndpointError("a range was cut off")
        seen = _validators(answer)
        if reading.seen not in (None, seen):
            # The object was replaced during the read, which begins again.
            self._end(reading)
            return size
        reading.seen = seen
        reading.size += size
        reading.digest.update(got)
        if reading.size == entry.size:
            known = self._known[entry]
            is_right = reading.digest.hexdigest() == entry.sha256
            known.content = "" if is_right else "its content is not what was published"
            known.compared, known.is_urgent = self._number, False
            self._end(reading)
        return size

    def _range(self, reading: PartialRead, size: int) -> http.client.HTTPResponse:
        """Request the next bytes of an object. Raises ObjectError and EndpointError."""
        entry, last = reading.entry, reading.size + size - 1
        self._connection.start()
        headers = {"Range": f"bytes={reading.size}-{last}"}
        if self.endpoint.origin and self._known[entry].content:
            # The cache has a corrupt copy: it may request the object from its origin again.
            headers["Cache-Control"] = "no-cache"
        answer = self._connection.request("GET", self._url(entry, "GET"), headers)
        if answer.status in (403, 404, 410, 416):
            self._connection.read(answer, 0)
            raise ObjectError(f"the answer is {answer.status}")
        if answer.status != 206:
            raise EndpointError(f"the answer to a range is {answer.status}")
        return answer

    def _end(self, reading: PartialRead) -> None:
        self._readings = {k: one for k, one in self._readings.items() if one is not reading}

    def _ask_without_objects(self) -> None:
        """Request the endpoint itself, where no manifest names an object there."""
        self._connection.start()
        answer = self._connection.request("HEAD", f"{self.endpoint.url}/", {})
        self._connection.read(answer, 0)
        if answer.status >= 500:
            raise EndpointError(f"the answer is {answer.status}")


def _validators(answer: http.client.HTTPResponse) -> Validators:
    return Validators(answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", ""))

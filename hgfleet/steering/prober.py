"""Prober of one endpoint: requests the headers of its objects and reads their content, in rounds.

An error of the endpoint (no connection, too slow, 5xx, 403 for every object) is told apart from an
error of one object (missing, another length, another content, 403 while other objects answer). Each
round requests the headers of the objects that are due and reads on in some:

- An endpoint that answers and then sends a byte a second counts as down, like a silent one.
- Every object is read whole in the course of time, at `read_rate`, and its sha256 is compared. A
  store with a corrupt disk or cache answers with the same headers as before.
- An object that was read whole has answered. Headers are requested of the others, within a bounded
  number of requests in a round.
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
    NEW,
    OTHERS,
    PASS,
    REFUSED,
    REQUESTS,
    ObjectError,
    Objects,
    ObjectState,
    Validators,
    classify,
    is_closed,
    wrong_length,
)

if TYPE_CHECKING:
    import http.client
    from collections.abc import Collection, Iterable

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

    state: ObjectState
    is_urgent: bool
    seen: Validators | None = None
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    @property
    def entry(self) -> Entry:
        """The manifest's entry of the object."""
        return self.state.entry


@dataclass
class Prober:
    """One endpoint and its objects between rounds."""

    endpoint: Endpoint
    config: Config
    condition: Condition = field(default_factory=Condition)
    objects: Objects = field(default_factory=Objects)
    _readings: dict[bool, PartialRead] = field(default_factory=dict)
    """The urgent read (True), and the other one, which goes on afterwards."""
    _number: int = 0
    _requests: int = 0
    """Requests of this round."""
    _signer: tuple[tuple[int, ...], presign.Signer] | None = None

    def __post_init__(self) -> None:
        self._connection = Connection(self.endpoint, self.config)

    def change(self, added: Iterable[Entry], removed: Iterable[Entry]) -> None:
        """Take over a change of the manifests."""
        for entry in removed:
            self.objects.remove(entry)
        for entry in added:
            # A copy is advertised only after it has been read.
            self.objects.add(entry, is_urgent=bool(self.endpoint.origin))

    def round(self) -> None:
        """Probe once: headers of new objects and of those that are due, and some content."""
        self._number += 1
        self._requests = 0
        try:
            due = self.objects.batch(self._number, is_up=self.condition.is_up)
            self._ask(due, time.monotonic() + self.config.interval_seconds)
            self._read(time.monotonic() + self.config.interval_seconds / 2)
            if not self._requests:
                self._ask_any()
        except EndpointError as problem:
            self._connection.close()
            self.condition = self.condition.after(str(problem))
        else:
            self.condition = self.condition.after(None)

    def _url(self, entry: Entry, method: str) -> str:
        """Return the URL that a client gets, signed where needed; it must not reach a log."""
        if not entry.private:
            return entry.url
        try:
            return self._keys().sign(entry.url, datetime.now(UTC), method)
        except ConfigurationError as error:
            raise EndpointError(str(error)) from error

    def _keys(self) -> presign.Signer:
        """Return the keys of private stores, read again where the file has changed."""
        try:
            found = self.config.signing.stat()
            stamp: tuple[int, ...] = (found.st_ino, found.st_size, found.st_mtime_ns)
        except OSError:
            stamp = ()
        if self._signer is None or not stamp or self._signer[0] != stamp:
            self._signer = (stamp, presign.load(self.config.signing))
        return self._signer[1]

    def _ask(self, asked: Collection[ObjectState], until: float) -> None:
        """Request the headers of these objects, and of some others if all get a 403."""
        answers: dict[ObjectState, str] = {}
        try:
            for state in asked:
                answers[state] = self._object(state)
                if time.monotonic() > until:
                    break  # the next round begins with the others
            others = self.objects.witnesses(answers) if is_closed(answers.values()) else ()
            for state in others:
                answers[state] = self._object(state)
                if not answers[state] or time.monotonic() > until:
                    break
        finally:
            # Those before an error of the endpoint answered, and the next round begins after them.
            for state in answers:
                self.objects.answered(state, self._number)
                self.objects.judge(state)
        self._record(answers.items())

    def _record(self, answers: Collection[tuple[ObjectState, str]]) -> None:
        """Record the problem of each object. Raises EndpointError if all of them are refused."""
        if is_closed([problem for _, problem in answers]):
            raise EndpointError(f"{REFUSED}, and no other object answers")
        for state, problem in answers:
            if state.headers != problem:
                state.headers = problem
                self.objects.judge(state)

    def _object(self, state: ObjectState) -> str:
        """Request the headers of an object; return the problem, or ""."""
        entry = state.entry
        self._connection.start()
        self._requests += 1
        answer = self._connection.request("HEAD", self._url(entry, "HEAD"), {})
        self._connection.read(answer, 0)
        try:
            classify(answer.status, int(answer.headers.get("Content-Length") or -1), entry.size)
        except ObjectError as problem:
            return str(problem)
        seen = _validators(answer)
        if state.seen not in (None, seen):
            state.is_urgent, state.content = True, "it was replaced, and has not been read since"
        state.seen = seen
        return ""

    def _read(self, until: float) -> None:
        """Read on where the last round ended, at least a piece."""
        rate = self.config.read_rate * self.config.interval_seconds
        left = int(min(rate, -(-self.objects.total // PASS)))
        answers: list[tuple[ObjectState, str]] = []
        most = PIECE
        while (reading := self._reading()) is not None:
            is_urgent = reading.is_urgent
            is_late = time.monotonic() >= until
            is_enough = self._requests >= REQUESTS + (NEW if is_urgent else 0)
            if most == MORE and (is_late or is_enough or (left <= 0 and not is_urgent)):
                break
            if most == PIECE and len(answers) > (1 if is_late else OTHERS):
                break
            wanted = most if is_urgent else min(most, max(left, PIECE))
            try:
                got = self._piece(reading, min(wanted, reading.entry.size - reading.size))
            except ObjectError as problem:
                reading.state.failed = self._number
                answers.append((reading.state, str(problem)))
                continue
            except EndpointError:
                if most == PIECE:
                    raise
                break  # one piece came in time; the next round reads the rest
            answers.append((reading.state, ""))
            left -= 0 if is_urgent else got
            most = MORE
        if is_closed([problem for _, problem in answers]):
            answers += self._witness([state for state, _ in answers], until)
        self._record(answers)

    def _witness(self, refused: list[ObjectState], until: float) -> list[tuple[ObjectState, str]]:
        """Request a byte of other objects, until one is served."""
        answers: list[tuple[ObjectState, str]] = []
        for state in self.objects.witnesses(refused):
            try:
                self._piece(PartialRead(state, state.is_urgent), min(1, state.entry.size))
            except ObjectError as problem:
                answers.append((state, str(problem)))
            else:
                return [*answers, (state, "")]
            if time.monotonic() > until:
                break
        return answers

    def _reading(self) -> PartialRead | None:
        """Return the object to read on, except those that failed in this round."""
        state = self.objects.next_to_read(self._number)
        if state is None:
            return None
        reading = self._readings.get(state.is_urgent)
        if reading is None or not self._is_valid(reading):
            reading = self._readings[state.is_urgent] = PartialRead(state, state.is_urgent)
        return reading

    def _is_valid(self, reading: PartialRead) -> bool:
        """Whether a read can go on: of a published object that answers, with the same urgency."""
        state = reading.state
        can_go_on = state.is_readable and state.failed < self._number
        return can_go_on and self.objects.holds(state) and state.is_urgent == reading.is_urgent

    def _piece(self, reading: PartialRead, size: int) -> int:
        """Read some bytes and return their number; compare the digest after the last ones."""
        entry = reading.entry
        answer = self._range(reading, size)
        got = self._connection.read(answer, size)
        if len(got) != size:
            raise EndpointError("a range was cut off")
        state = reading.state
        state.served = self._number
        seen = _validators(answer)
        if reading.seen not in (None, seen):
            # The object was replaced during the read, which begins again.
            self._end(reading)
            return size
        reading.seen = seen
        reading.size += size
        reading.digest.update(got)
        if reading.size == entry.size:
            is_right = reading.digest.hexdigest() == entry.sha256
            state.content = "" if is_right else "its content is not what was published"
            state.compared, state.is_urgent = self._number, False
            # A whole read is an answer, so no request for the headers is due.
            self.objects.answered(state, self._number)
            self.objects.judge(state)
            self._end(reading)
        return size

    def _range(self, reading: PartialRead, size: int) -> http.client.HTTPResponse:
        """Request the next bytes of an object. Raises ObjectError and EndpointError."""
        entry, last = reading.entry, reading.size + size - 1
        self._connection.start()
        self._requests += 1
        headers = {"Range": f"bytes={reading.size}-{last}"}
        if self.endpoint.origin and reading.state.content:
            # The cache has a corrupt copy: it may request the object from its origin again.
            headers["Cache-Control"] = "no-cache"
        answer = self._connection.request("GET", self._url(entry, "GET"), headers)
        if answer.status in (403, 404, 410, 416):
            self._connection.read(answer, 0)
            raise ObjectError(f"the answer is {answer.status}")
        if answer.status == 200:
            raise EndpointError("the answer to a range is 200")
        if answer.status != 206:
            raise EndpointError(f"the answer is {answer.status}")
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if whole.isdecimal() and int(whole) != entry.size:
            self._connection.read(answer, 0)
            raise ObjectError(wrong_length(int(whole), entry.size))
        return answer

    def _end(self, reading: PartialRead) -> None:
        self._readings = {k: one for k, one in self._readings.items() if one is not reading}

    def _ask_any(self) -> None:
        """Request one object where none has its turn, or the endpoint itself where it has none."""
        state = self.objects.oldest()
        if state is not None:
            self._ask([state], time.monotonic())
            return
        self._connection.start()
        answer = self._connection.request("HEAD", f"{self.endpoint.url}/", {})
        self._connection.read(answer, 0)
        if answer.status >= 500:
            raise EndpointError(f"the answer is {answer.status}")


def _validators(answer: http.client.HTTPResponse) -> Validators:
    return Validators(answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", ""))

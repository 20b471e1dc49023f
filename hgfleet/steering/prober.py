"""Prober of an endpoint: requests the headers of its objects and reads their content, in rounds.

The prober distinguishes an error of the endpoint (no connection, too slow, 5xx, 403 for every
object) from an error of an object (missing, other length, other content, 403 while other objects
answer). Each round requests the headers of the objects that are due and continues to read content:

- An endpoint that answers and then sends a byte a second counts as down, like a silent one.
- Every object is read completely in the course of time, at `read_rate`, and its sha256 is
  compared, because a store with a corrupt disk or cache answers with the same headers as before.
- A complete read counts as an answer. Headers are requested only for other objects, within a
  bounded number of requests in a round.
- An object with changed headers is dead until it has been read again; it is read first.
- A copy (`Endpoint.origin`) is advertised only after it has been read; copies are read first, too.
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

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.steering.order import Endpoint
    from hgfleet.steering.settings import Config

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
    """An endpoint and its objects between rounds."""

    endpoint: Endpoint
    config: Config
    condition: Condition = field(default_factory=Condition)
    objects: Objects = field(default_factory=Objects)
    _readings: dict[bool, PartialRead] = field(default_factory=dict)
    """The urgent read (True) and the regular read (False), which continues after it."""
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
            # A copy is urgent: it is advertised only after it has been read.
            self.objects.add(entry, is_urgent=bool(self.endpoint.origin))

    def round(self) -> None:
        """Probe once: headers of objects that are new or due, and some content."""
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
        """Return the URL that a client gets, signed if needed; it must not reach a log."""
        if not entry.private:
            return entry.url
        try:
            return self._keys().sign(entry.url, datetime.now(UTC), method)
        except ConfigurationError as error:
            raise EndpointError(str(error)) from error

    def _keys(self) -> presign.Signer:
        """Return the keys of private stores, read again where the file has changed."""
        try:
            status = self.config.signing.stat()
            stamp: tuple[int, ...] = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            stamp = ()
        if self._signer is None or not stamp or self._signer[0] != stamp:
            self._signer = (stamp, presign.load(self.config.signing))
        return self._signer[1]

    def _ask(self, asked: Collection[ObjectState], until: float) -> None:
        """Request the headers of these objects; if all of them get a 403, also of some others."""
        answers: dict[ObjectState, str] = {}
        try:
            for state in asked:
                answers[state] = self._object(state)
                if time.monotonic() > until:
                    break  # the next round begins with the remaining objects
            others = self.objects.witnesses(answers) if is_closed(answers.values()) else ()
            for state in others:
                answers[state] = self._object(state)
                if not answers[state] or time.monotonic() > until:
                    break
        finally:
            # The objects before an error of the endpoint did answer, so the next round begins after
            # them.
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
        # Three bounds apply: bytes of the round (`left`, for regular reads only), requests and
        # time. The first piece is small, because its speed decides whether the endpoint is up;
        # after it the pieces are large, and an error of the endpoint ends only this round's
        # reading. Objects that fail before the first good piece do not use up the bound on
        # bytes, and their number is bounded by OTHERS: behind a 403 for all of them the endpoint
        # may be closed, which `_witness` decides.
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
                break  # a piece came in time; the next round reads the rest
            answers.append((reading.state, ""))
            left -= 0 if is_urgent else got
            most = MORE
        if is_closed([problem for _, problem in answers]):
            answers += self._witness([state for state, _ in answers], until)
        self._record(answers)

    def _witness(self, refused: list[ObjectState], until: float) -> list[tuple[ObjectState, str]]:
        """Request a byte of other objects, until the endpoint serves one."""
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
        """Return the object to continue with, unless it failed in this round."""
        state = self.objects.next_to_read(self._number)
        if state is None:
            return None
        reading = self._readings.get(state.is_urgent)
        if reading is None or not self._is_valid(reading):
            reading = self._readings[state.is_urgent] = PartialRead(state, state.is_urgent)
        return reading

    def _is_valid(self, reading: PartialRead) -> bool:
        """Whether a read can continue: its object is published, answers, and is as urgent."""
        state = reading.state
        can_go_on = state.is_readable and state.failed < self._number
        return can_go_on and self.objects.holds(state) and state.is_urgent == reading.is_urgent

    def _piece(self, reading: PartialRead, size: int) -> int:
        """Read some bytes and return their number; compare the digest after the last byte."""
        entry = reading.entry
        answer = self._range(reading, size)
        got = self._connection.read(answer, size)
        if len(got) != size:
            raise EndpointError("a range was cut off")
        state = reading.state
        state.served = self._number
        seen = _validators(answer)
        if reading.seen not in (None, seen):
            # The object was replaced during the read, so the read starts again.
            self._end(reading)
            return size
        reading.seen = seen
        reading.size += size
        reading.digest.update(got)
        if reading.size == entry.size:
            is_right = reading.digest.hexdigest() == entry.sha256
            state.content = "" if is_right else "its content is not what was published"
            state.compared, state.is_urgent = self._number, False
            # A complete read counts as an answer, so no request for the headers is due.
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
            # The copy in the cache is corrupt: make the cache request the object from its origin.
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
        self._readings = {k: other for k, other in self._readings.items() if other is not reading}

    def _ask_any(self) -> None:
        """Request an object although none is due, or the endpoint itself if it has no objects."""
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

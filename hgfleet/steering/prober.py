"""Prober of an endpoint: requests the headers of its objects and reads their content, in rounds.

The prober distinguishes an error of the endpoint (no connection, or an error with every object)
from an error of an object (missing, other length, other content, or any error while other objects
answer). Each round requests the headers of the objects that are due and continues to read content:

- After an error with one object (a status, no answer, a stream that stops), the prober requests
  another object. If that object answers, only the first one is dead: a disk with a bad sector
  serves all other objects.
- An object that was not served is requested with the same range until it is served.
- An endpoint that answers and then sends a byte a second counts as down, like a silent one.
- Every object is read completely in the course of time, at `read_rate`, and its sha256 is
  compared, because a store with a corrupt disk or cache answers with the same headers as before.
- A complete read counts as an answer. Headers are requested only for other objects, within a
  bounded number of requests in a round.
- An object with changed headers is dead until it has been read again; it is read first.
- A copy (`Endpoint.origin`) is advertised only after it has been read; copies are read first, too.
  After an error with a copy, the request goes past the cache: the cache may hold the wrong answer.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore import presign
from hgfleet.steering.connection import Connection, EndpointError, NoAnswerError
from hgfleet.steering.health import MAX_AGE_SECONDS, Condition
from hgfleet.steering.selection import (
    NEW,
    OTHERS,
    PASS,
    REQUESTS,
    ObjectError,
    Objects,
    ObjectState,
    Validators,
    classify,
    is_closed,
    may_be_endpoints,
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

WITNESS_SHARE: Final = 0.5
"""The part of `timeout_seconds` that another object has after an object without an answer. Clients
are sent to an endpoint that has just died for as long as both of them take."""

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

    def fail(self, number: int, size: int) -> None:
        """Record that `size` bytes did not come in the round `number`."""
        self.state.failed, self.state.unserved = number, (self.size, size)


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
    _started: float = 0.0
    _is_late: bool = False
    """Whether an object without an answer used up the time of this round."""
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
        self._requests, self._started, self._is_late = 0, time.monotonic(), False
        try:
            due = self.objects.batch(self._number, is_up=self.condition.is_up)
            until = time.monotonic() + self.config.interval_seconds
            self._ask([state for state in due if state.unserved is None], until)
            self._retry([state for state in due if state.unserved is not None], until)
            if not self._is_late:
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
        """Request the headers of these objects; if all have errors, also of some others.

        A good answer shows that the errors are of the objects. If there is none, and the endpoint
        may cause an error, objects that are not due are requested too, until one answers well. If
        none does, `_record` takes it for an error of the endpoint.
        """
        answers: dict[ObjectState, str] = {}
        try:
            for state in asked:
                try:
                    answers[state] = self._object(state)
                except NoAnswerError as error:
                    answers |= dict(self._other_answer(state, error, 0))
                    break
                is_many = len(answers) == OTHERS and is_closed(answers.values())
                if is_many or time.monotonic() > until:
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
        """Record the problem of each object. Raises EndpointError if all of them have errors."""
        problems = [problem for _, problem in answers]
        if is_closed(problems):
            problem = next(problem for problem in problems if may_be_endpoints(problem))
            raise EndpointError(f"{problem}, and no other object answers")
        for state, problem in answers:
            if state.headers != problem:
                state.headers = problem
                self.objects.judge(state)

    def _object(self, state: ObjectState) -> str:
        """Request the headers of an object; return the problem, or ""."""
        entry = state.entry
        self._connection.start(WITNESS_SHARE if self._is_late else 1.0)
        self._requests += 1
        headers = self._past_cache(state)
        answer = self._connection.request("HEAD", self._url(entry, "HEAD"), headers)
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

    def _retry(self, unserved: list[ObjectState], until: float) -> None:
        """Request again what was not served of these objects; headers that come prove nothing."""
        answers: list[tuple[ObjectState, str]] = []
        for state in unserved:
            if self._is_late or (answers and time.monotonic() > until):
                break
            assert state.unserved is not None
            first, size = state.unserved
            self.objects.answered(state, self._number)
            try:
                self._content(state, first, size)
                answers.append((state, ""))
            except ObjectError as problem:
                answers.append((state, str(problem)))
            except NoAnswerError as error:
                answers += self._other_answer(state, error, size)
            if len(answers) == OTHERS and is_closed([problem for _, problem in answers]):
                break
        if is_closed([problem for _, problem in answers]):
            answers += self._witness([state for state, _ in answers], until)
        self._record(answers)

    def _other_answer(
        self, silent: ObjectState, error: NoAnswerError, size: int
    ) -> list[tuple[ObjectState, str]]:
        """Request another object after no answer for one; return the problems of both.

        Raises `error` if no other object answers. An endpoint that sends a byte a second would
        serve a small object in time, so the other object must give as many bytes as were requested,
        `size`; 0 stands for the headers. The health of all endpoints waits for this round, so there
        is no second error of this kind in it, and no further request if it is late.
        """
        config, self._is_late = self.config, True
        latest = self._started + MAX_AGE_SECONDS - config.timeout_seconds - config.interval_seconds
        for state in self.objects.witnesses([silent]):
            if state.headers or state.unserved or state.entry.size < size:
                continue
            if time.monotonic() > latest:
                break
            try:
                if size:
                    self._content(state, 0, size)
                elif self._object(state):
                    continue
            except ObjectError:
                continue
            except NoAnswerError:
                break
            return [(silent, str(error)), (state, "")]
        raise error

    def _read(self, until: float) -> None:
        """Read on where the last round ended, at least a piece."""
        # Three bounds apply: bytes of the round (`left`, for regular reads only), requests and
        # time. The first piece is small, because its speed decides whether the endpoint is up;
        # after it the pieces are large, and a piece without an answer ends only this round's
        # reading. Objects that fail before the first good piece do not use up the bound on
        # bytes, and their number is bounded by OTHERS: behind an error with all of them the
        # endpoint may be closed, which `_witness` decides.
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
            wanted = min(wanted, reading.entry.size - reading.size)
            try:
                got = self._piece(reading, wanted)
            except ObjectError as problem:
                reading.fail(self._number, wanted)
                answers.append((reading.state, str(problem)))
                continue
            except NoAnswerError as error:
                if most == PIECE:
                    answers += self._other_answer(reading.state, error, wanted)
                    reading.fail(self._number, wanted)
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
        state, entry = reading.state, reading.entry
        seen, got = self._content(state, reading.size, size)
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

    def _content(self, state: ObjectState, first: int, size: int) -> tuple[Validators, bytes]:
        """Request `size` bytes of an object. Raises ObjectError and EndpointError."""
        entry = state.entry
        self._connection.start(WITNESS_SHARE if self._is_late else 1.0)
        self._requests += 1
        headers = {"Range": f"bytes={first}-{first + size - 1}", **self._past_cache(state)}
        answer = self._connection.request("GET", self._url(entry, "GET"), headers)
        if answer.status != 206:
            self._connection.read(answer, 0)
            said = "the answer to a range" if answer.status == 200 else "the answer"
            raise ObjectError(f"{said} is {answer.status}")
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if whole.isdecimal() and int(whole) != entry.size:
            self._connection.read(answer, 0)
            raise ObjectError(wrong_length(int(whole), entry.size))
        got = self._connection.read(answer, size)
        if len(got) != size:
            raise NoAnswerError("a range was cut off")
        state.served, state.unserved = self._number, None
        return _validators(answer), got

    def _past_cache(self, state: ObjectState) -> dict[str, str]:
        """Return the header that makes a cache request from its origin what it holds wrong."""
        has_problem = state.content or state.headers or state.unserved
        return {"Cache-Control": "no-cache"} if self.endpoint.origin and has_problem else {}

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

"""Selection of the objects that a round of probes requests and reads. Pure.

Each object has a state between rounds; the round number is the clock. The cost of a round depends
only on the objects that it touches. A rotation orders the requests for headers and a heap orders
the reads; both change only with the states of the touched objects.
"""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hgfleet.bundles.decide.manifest import Entry

ROUNDS: Final = 6
"""An object without an answer in so many rounds is requested."""

PASS: Final = 2 * ROUNDS - 1
"""Rounds in which every object is read once, if all objects are small.

A complete read is an answer too, so each object gets a single request for its headers between two
reads. A read costs the store more than twice the processor time of such a request, and costs the
prober the digest.
"""

REQUESTS: Final = 72
"""Requests of a round at an endpoint while all is well: 24 a second in rounds of 3 s."""

DUE: Final = REQUESTS // 2
"""Objects whose headers are requested in a round because they gave no answer for `ROUNDS`."""

NEW: Final = 100
"""New objects whose headers are requested in a round; also urgent requests for content."""

OTHERS: Final = 10
"""Objects with an error in a row after which a round tries others, and the number of those."""

REFUSED: Final = "the answer is 403"
"""If all objects get it, the bucket has lost its policy, or refuses the reader's key.

If a single object gets it, the object is missing. For a missing key S3 answers 404 to a client with
the permission s3:ListBucket, else 403 AccessDenied (AWS, API reference of GetObject); clients of
bundles cannot list.
"""

_OF_OBJECT: Final = re.compile(r"the answer is (404|410|416)|it has [0-9,]+ bytes instead of .*")
"""The problems that are errors of an object even if no other object answers."""


class ObjectError(Exception):
    """The endpoint answers, but not with the object that the manifest names."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The headers that change when an object is replaced."""

    etag: str
    modified: str


@dataclass(eq=False, slots=True)
class ObjectState:
    """The state of an object between rounds.

    Four fields are numbers of rounds, 0 before the first: in `asked` the object last answered a
    request for its headers or was read to its end, in `compared` its content was last read to the
    end, in `served` some content came, in `failed` none came. `headers` and `content` are the
    problems of headers and content, or "". `unserved` is the range (first byte, length) that the
    endpoint did not serve: the object is requested with this range until the endpoint serves it,
    because headers do not show a bad sector.
    """

    entry: Entry
    is_urgent: bool = False
    """To be read before all objects that are not urgent."""
    seen: Validators | None = None
    asked: int = 0
    compared: int = 0
    served: int = 0
    failed: int = 0
    headers: str = ""
    content: str = ""
    unserved: tuple[int, int] | None = None
    placed: tuple[bool, int, int] | None = None
    """The place in the heap of `Objects`, None if it is not there."""

    @property
    def is_readable(self) -> bool:
        """Whether the object answers, without which it cannot be read."""
        return bool(self.asked) and not self.headers

    @property
    def place(self) -> tuple[bool, int, int]:
        """The place in the order of reading: urgent first, then longest unread, then smallest."""
        return (not self.is_urgent, self.compared, self.entry.size)


@dataclass
class Objects:
    """The objects of an endpoint by URL, and the order of their turns.

    `dead` has the URLs of objects that must not be advertised, with the reasons; `read` the URLs of
    objects whose content was compared and is right. `version` grows with each change of both.
    `total` is the size of all objects in bytes.
    """

    dead: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    version: int = 0
    total: int = 0
    _states: dict[str, ObjectState] = field(default_factory=dict)
    _new: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _asked: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The objects that have answered, the oldest answer first."""
    _to_read: list[tuple[tuple[bool, int, int], str]] = field(default_factory=list)
    """A heap. An object whose place has changed is in it twice; only the new place counts."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ObjectState]:
        return iter(self._states.values())

    def holds(self, state: ObjectState) -> bool:
        """Whether a state is current, and not of an earlier publication of its object."""
        return self._states.get(state.entry.url) is state

    def add(self, entry: Entry, *, is_urgent: bool = False) -> ObjectState:
        """Add a published object; if it was published before, its state starts again."""
        self.remove(entry)
        state = self._states[entry.url] = ObjectState(entry, is_urgent)
        self._new[entry.url] = None
        self.total += entry.size
        return state

    def remove(self, entry: Entry) -> None:
        """Forget an object."""
        state = self._states.pop(entry.url, None)
        if state is not None:
            self._new.pop(entry.url, None)
            self._asked.pop(entry.url, None)
            self.total -= state.entry.size
            self._find(entry.url, "", is_read=False)

    def answered(self, state: ObjectState, number: int) -> None:
        """Move an object to the end of the rotation, in the round `number`."""
        url = state.entry.url
        state.asked = number
        self._new.pop(url, None)
        self._asked[url] = None
        self._asked.move_to_end(url)

    def judge(self, state: ObjectState) -> None:
        """Take over a changed state: the findings, and the place in the order of reading."""
        is_read = bool(state.compared) and not state.content
        self._find(state.entry.url, state.headers or state.content, is_read=is_read)
        if state.is_readable and state.placed != state.place:
            state.placed = state.place
            heapq.heappush(self._to_read, (state.place, state.entry.url))
        if len(self._to_read) > 2 * len(self._states) + REQUESTS:
            # Most entries of the heap are outdated: build it again from the states.
            for each in self._states.values():
                each.placed = each.place if each.is_readable else None
            placed = ((each.placed, each.entry.url) for each in self._states.values())
            self._to_read = [(place, url) for place, url in placed if place is not None]
            heapq.heapify(self._to_read)

    def _find(self, url: str, problem: str, *, is_read: bool) -> None:
        if self.dead.get(url, "") != problem or (url in self.read) != is_read:
            self.version += 1
        if problem:
            self.dead[url] = problem
        else:
            self.dead.pop(url, None)
        (self.read.add if is_read else self.read.discard)(url)

    def batch(self, number: int, *, is_up: bool) -> list[ObjectState]:
        """Return the objects to request in the round `number`: those that are new or due.

        While the endpoint is down, the objects with the oldest answers are due in any case: one of
        them may answer.
        """
        due: list[ObjectState] = []
        for url in self._asked:
            state = self._states[url]
            is_idle = state.asked <= number - ROUNDS
            if len(due) == DUE or not (is_idle or (not is_up and len(due) * ROUNDS < len(self))):
                break
            due.append(state)
        new = [self._states[url] for url, _ in zip(self._new, range(NEW), strict=False)]
        return new + due

    def oldest(self) -> ObjectState | None:
        """Return the object with the oldest answer; objects that never answered do not count."""
        return next((self._states[url] for url in self._asked), None)

    def witnesses(self, asked: Collection[ObjectState]) -> list[ObjectState]:
        """Return the objects to request after an error with all of `asked`.

        The object that gave content last comes first. Next come objects without a problem, the most
        recent answer first: objects that are missing together were uploaded together and are
        requested in the same rounds, so a recent answer comes from another upload.
        """
        known = {*asked}
        others = [state for state in self._states.values() if state not in known]
        last = max(others, key=lambda state: state.served, default=None)

        def order(state: ObjectState) -> tuple[bool, bool, int]:
            return (state is not last or not state.served, bool(state.headers), -state.asked)

        return heapq.nsmallest(OTHERS, others, key=order)

    def next_to_read(self, number: int) -> ObjectState | None:
        """Return the object to read next: the smallest that is urgent, else the longest unread.

        An object that does not answer cannot be read. An object that was compared or that failed in
        this round, which is `number`, is read again only in a later round.
        """
        # The heap may hold an object at an old place, or an object that is gone or dead: such
        # entries are dropped here. Objects that had their turn in this round are put aside and
        # return to the heap at the end. If a regular object on top was compared in this round, all
        # objects behind it were compared too, because the order is by the round of comparison.
        aside = []
        chosen = None
        while self._to_read and chosen is None:
            place, url = self._to_read[0]
            state = self._states.get(url)
            if state is None or not state.is_readable or state.place != place:
                heapq.heappop(self._to_read)
                if state is not None and state.placed == place:
                    state.placed = None
            elif state.compared < number and state.failed < number:
                chosen = state
            elif state.compared >= number and not state.is_urgent:
                break  # and so were all objects behind it
            else:
                aside.append(heapq.heappop(self._to_read))
        for skipped in aside:
            heapq.heappush(self._to_read, skipped)
        return chosen


def classify(status: int, length: int, expected: int) -> None:
    """Check the headers of an object. Raises ObjectError.

    Most errors count as errors of the object until the other answers are known (`is_closed`).
    """
    if status not in (200, 206):
        raise ObjectError(f"the answer is {status}")
    if length != expected:
        raise ObjectError(wrong_length(length, expected))


def wrong_length(length: int, expected: int) -> str:
    """Return the problem of an object whose length differs from its manifest."""
    return f"it has {length:,} bytes instead of {expected:,}"


def is_closed(answers: Collection[str]) -> bool:
    """Whether the errors are errors of the endpoint; `answers` are the problems of the objects.

    As long as any object of the endpoint answers well (""), they are errors of the objects. A
    missing object, or one of another length, says nothing about the endpoint.
    """
    return "" not in answers and any(map(may_be_endpoints, answers))


def may_be_endpoints(problem: str) -> bool:
    """Whether a problem with an object may be a problem of its endpoint."""
    return bool(problem) and not _OF_OBJECT.fullmatch(problem)

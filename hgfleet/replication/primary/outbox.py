"""Decisions about the outbox: which records of a push log go to the stream next. Pure.

The push log is the outbox. The relay has a position in each log: the last record that the stream
has acknowledged. The stream also knows its last message of each repository, so no record is sent
twice if a position is lost, or was not updated before a kill.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.pushlog.log_file import Tip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.pushlog.committed import Stamp
    from hgfleet.pushlog.log_file import Entry
    from hgfleet.replication.protocol.messages import PushMessage
    from hgfleet.replication.protocol.streams import Streamed

FEW: Final = 64
"""A log with at most so many records, and none in the stream, is published whole. Of a longer log
only the last record is published: mirrors notice the gap, and fetch the rest from the source."""

MOST_IN_MESSAGE: Final = 2000
"""Most changesets of a record for which a changegroup is computed for a message."""


MOST_PROBLEMS: Final = 1000
"""Entries of the state file for repositories and subjects; further entries are in the journal."""

LOST: Final = -1
"""The stream has lost the message; the record goes to the stream again."""


@dataclass(frozen=True, slots=True)
class Position:
    """The last record of a repository, by its identity, that the stream has."""

    repository: str
    tip: Tip
    stamp: Stamp
    """Stamp of the log when it was read."""
    sequence: int = 0
    """The message's number in the stream, or LOST."""


def is_read(position: Position | None, stamp: Stamp | None) -> bool:
    """Whether a log has nothing to publish: it has not changed since the position."""
    if stamp is None:
        # If a log is gone, but mirrors have pushes of it, it has to be checked.
        return position is None or not position.tip.id
    return (
        position is not None
        and position.sequence != LOST
        and position.stamp == stamp
        and position.tip.end == stamp.size
    )


def published(entries: Iterable[Entry], streamed: Streamed) -> list[Entry]:
    """Return the records that the stream has, by its last push; records of a later epoch differ.

    The record with the number of that push is left out if it is a different push.
    """
    return [
        entry
        for entry in entries
        if entry.record.epoch <= streamed.epoch
        and (
            entry.record.id < streamed.id
            or (entry.record.id == streamed.id and streamed.hash in ("", entry.hash))
        )
    ]


def after(tip: Tip, entries: Iterable[Entry]) -> Tip:
    """Return the end of a chain after these records."""
    for entry in entries:
        record = entry.record
        tip = Tip(record.id, entry.hash, record.repository, entry.end, record.epoch)
    return tip


def fits(entry: Entry) -> bool:
    """Whether it is worthwhile to compute the changegroup of a record for a message."""
    return 0 < len(entry.record.changesets) <= MOST_IN_MESSAGE


def lost(positions: Iterable[Position], last_sequence: int, *, is_new: bool) -> list[Position]:
    """Return the positions whose messages are beyond the count of the stream.

    Either the stream was created again, after the loss of a broker's disk or by an operator, or a
    broker lost its last messages in a power cut.
    """
    return [known for known in positions if is_new or known.sequence > last_sequence]


def body(message: PushMessage, most: int) -> bytes:
    """Return the body of a message within a size: without changesets, or without the record."""
    whole_body = message.body()
    if len(whole_body) <= most:
        return whole_body
    line = message.line + b"\n"
    return line if len(line) <= most else b""


def is_whole(message: PushMessage, content: bytes) -> bool:
    """Whether a body has the record and all its changesets."""
    has_changesets = bool(message.changegroup or not message.record.changesets)
    return has_changesets and len(content) == len(message.body())


class Queue:
    """Repositories, by identity, with records to publish, each with one worker at a time.

    Repositories whose pushers wait come first. The clock is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._active: set[str] = set()
        self._since: dict[str, float] = {}
        """Since when each repository waits; a message that is refused does not end its wait."""
        self._clock = clock

    def __len__(self) -> int:
        return len(self._waiting) + len(self._active)

    def add(self, repository: str, *, first: bool = False) -> None:
        """Add a repository; if a worker has it now, it is checked again afterwards."""
        self._waiting.setdefault(repository)
        self._since.setdefault(repository, self._clock())
        if first:
            self._waiting.move_to_end(repository, last=False)

    def take(self) -> str | None:
        """Return the next repository that no worker has."""
        for repository in self._waiting:
            if repository not in self._active:
                del self._waiting[repository]
                self._active.add(repository)
                return repository
        return None

    def done(self, repository: str, *, refused: bool = False) -> None:
        """End the work at a repository; `refused`: the broker did not take its message."""
        self._active.discard(repository)
        if repository not in self._waiting:
            self._since.pop(repository, None)
        elif not refused:
            self._since[repository] = self._clock()

    def late(self, seconds: float) -> list[str]:
        """Return the repositories that wait for at least this time, the longest wait first."""
        until = self._clock() - seconds
        late = [repository for repository, since in self._since.items() if since <= until]
        return sorted(late, key=self._since.__getitem__)

    def longest(self) -> float:
        """Return for how long a repository waits at most, in seconds."""
        return self._clock() - min(self._since.values(), default=self._clock())

"""Changes that each mirror shows, and the answer to a session that waits for mirrors. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.hg import required_copy
from hgfleet.replication.documents.documents import FIRST
from hgfleet.replication.protocol.messages import Hint

if TYPE_CHECKING:
    from collections.abc import Collection

    from hgfleet.replication.protocol.messages import Brought

MAX_REPOSITORIES: Final = 20_000
"""Repositories whose newest pushes are remembered; the longest unchanged are dropped first."""


MOST_HASHES: Final = 64
"""Hashes of a repository; a push that is further behind does not count as visible."""


@dataclass(slots=True)
class _Published:
    """Pushes of a repository in the stream: number of the newest, hashes of the last pushes."""

    newest: int = 0
    hashes: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, hash_: str) -> None:
        """Record a push. If its number has another hash than before, another chain begins."""
        if self.differs(number, hash_):
            self.newest = number
            self.hashes = {known: old for known, old in self.hashes.items() if known < number}
        self.newest = max(number, self.newest)
        if hash_:
            self.hashes[number] = hash_
            for known in sorted(self.hashes)[:-MOST_HASHES]:
                del self.hashes[known]

    def differs(self, number: int, hash_: str) -> bool:
        """Whether another push of this chain has the number."""
        return "" not in (hash_, known := self.hashes.get(number, "")) and known != hash_

    def has(self, number: int, hash_: str) -> bool:
        """Whether this chain has a push; only a host of the previous release names no hash."""
        if number > self.newest:
            return False
        return not hash_ or not self.hashes or self.hashes.get(number) == hash_


class Shown:
    """The newest published push of each repository, and the newest push that each mirror shows.

    A push is a number and the hash of its record ("" from an earlier release, which only sends the
    number): after a restore or a promotion, another push may have the number of a push that
    mirrors show. Only repositories with a published push are remembered, so a mirror cannot fill
    the memory.
    """

    def __init__(self, most: int = MAX_REPOSITORIES) -> None:
        self._most = most
        self._published: OrderedDict[str, _Published] = OrderedDict()
        self._applied: dict[str, dict[str, tuple[int, str]]] = {}

    def expect(self, repository: str) -> None:
        """Remember a repository: a mirror may show its push before the broker has answered."""
        self._published.setdefault(repository, _Published())
        self._published.move_to_end(repository)
        self._forget()

    def published(self, repository: str, number: int, hash_: str = "") -> None:
        """Record that the stream has this push."""
        self._published.setdefault(repository, _Published()).add(number, hash_)
        self._published.move_to_end(repository)
        self._forget()

    def _forget(self) -> None:
        while len(self._published) > self._most:
            oldest, _ = self._published.popitem(last=False)
            self._applied.pop(oldest, None)

    def learn(self, repository: str, number: int, hash_: str) -> None:
        """Record the hash of a push of the log that was published before."""
        published = self._published.get(repository)
        if (
            published is not None
            and number <= published.newest
            and not published.differs(number, hash_)
        ):
            published.add(number, hash_)

    def applied(self, host: str, repository: str, number: int, hash_: str = "") -> bool:
        """Record the newest push that a mirror shows; return whether this is new."""
        if repository not in self._published:
            return False
        newest = self._applied.setdefault(repository, {})
        before = newest.get(host)
        # After a fresh copy of a repository, a mirror may show an older push.
        newest[host] = (number, hash_)
        return before != newest[host]

    def knows(self, repository: str, number: int) -> bool:
        """Whether the hash of a push is known."""
        published = self._published.get(repository)
        return published is not None and number in published.hashes

    def is_published(self, repository: str, number: int, hash_: str = "") -> bool:
        """Whether the stream has this push."""
        published = self._published.get(repository)
        return published is not None and published.has(number, hash_)

    def showing(self, repository: str, number: int, hash_: str = "") -> frozenset[str]:
        """Return the mirrors that show this push, or a later push of the same chain.

        If a mirror shows a later push than the stream has, it does not count until the stream has
        that push: the push may belong to another chain.
        """
        published = self._published.get(repository)
        if published is None or not published.has(number, hash_):
            return frozenset()
        return frozenset(
            host
            for host, (newest, newest_hash) in self._applied.get(repository, {}).items()
            if newest >= number
            and published.has(newest, newest_hash)
            and (newest != number or "" in (hash_, newest_hash) or hash_ == newest_hash)
        )


class Hints:
    """Numbered hints of changed documents, and the newest hint that each mirror has followed.

    A mirror that has followed a hint read the document after it, so it has the change that the hint
    was for, and later changes. Numbers count within a run of the relay, which `boot` names.
    """

    def __init__(self, boot: str) -> None:
        self.boot = boot
        self._number = 0
        self._published: dict[str, int] = {}
        self._followed: dict[str, dict[str, int]] = {}

    def next(self) -> Hint:
        """Return a new hint."""
        self._number += 1
        return Hint(self.boot, self._number)

    def published(self, document: str, hint: Hint) -> None:
        """Record that the stream has this hint."""
        self._published[document] = max(hint.number, self._published.get(document, 0))

    def is_published(self, document: str, hint: Hint) -> bool:
        """Whether the stream has this hint, or a later hint."""
        return self._published.get(document, 0) >= hint.number

    def brought(self, message: Brought) -> bool:
        """Record that a mirror has followed a hint; return whether this is new."""
        is_ours = message.boot == self.boot and 0 < message.number <= self._number
        if not is_ours or message.document not in FIRST:
            return False
        followed = self._followed.setdefault(message.document, {})
        if message.number <= followed.get(message.host, 0):
            return False
        followed[message.host] = message.number
        return True

    def showing(self, document: str, hint: Hint) -> frozenset[str]:
        """Return the mirrors that have followed this hint."""
        followed = self._followed.get(document, {})
        return frozenset(host for host, newest in followed.items() if newest >= hint.number)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a session about its push, or about its change of a document."""

    visible: int
    of: int
    seconds: float
    slow: tuple[str, ...] = ()
    """Live mirrors that do not show the push yet."""
    down: tuple[str, ...] = ()
    """Mirrors without a lease."""
    broker: bool = True
    """Whether the stream has the push."""
    problem: str = ""
    """Why mirrors will not get the push; the repository is fenced."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of the answer's line."""
        return {
            "visible": self.visible,
            "of": self.of,
            "seconds": round(self.seconds, 2),
            "slow": list(self.slow),
            "down": list(self.down),
            "broker": self.broker,
            **({"problem": self.problem} if self.problem else {}),
        }


def answer(
    showing: Collection[str],
    live: Collection[str],
    mirrors: Collection[str],
    *,
    published: bool,
    seconds: float,
    problem: str = "",
) -> Answer:
    """Return the answer at this moment."""
    shown = [host for host in mirrors if host in showing]
    return Answer(
        visible=len(shown),
        of=len(mirrors),
        seconds=seconds,
        slow=tuple(host for host in mirrors if host in live and host not in showing),
        down=tuple(host for host in mirrors if host not in live and host not in showing),
        broker=published,
        problem=problem,
    )


def has_copy(found: Answer, required: str) -> bool:
    """Whether a push gets the required copy, according to the answer at its start."""
    return required_copy.can_be_had(required, takes=found.broker, live=found.visible)


def is_final(found: Answer, *, settled: bool, takes: bool) -> bool:
    """Whether waiting longer changes nothing.

    Either the stream and each live mirror have the change, or the broker does not accept it (not
    `takes`). A relay that is not `settled` may still hear of further mirrors, or reach the broker
    again: the relay or the broker is being restarted, and mirrors that lost both are still in use.
    """
    if found.problem:
        return True
    if not found.broker:
        return settled and not takes
    return not found.slow and (settled or not found.down)

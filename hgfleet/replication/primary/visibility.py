"""Changes that mirrors show: how far each is, and the answer to a session that waits. Pure."""

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
"""Repositories of which the newest pushes are remembered; those pushed longest ago are dropped."""


MOST_HASHES: Final = 64
"""Of a repository; a push that is further behind is not counted as visible."""


@dataclass(slots=True)
class _Published:
    """What the stream has of a repository: the number of the newest push, hashes of the last."""

    newest: int = 0
    hashes: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, hash_: str) -> None:
        """Note a push. One that has another hash than before begins another chain."""
        if self.differs(number, hash_):
            self.newest = number
            self.hashes = {known: one for known, one in self.hashes.items() if known < number}
        self.newest = max(number, self.newest)
        if hash_:
            self.hashes[number] = hash_
            for known in sorted(self.hashes)[:-MOST_HASHES]:
                del self.hashes[known]

    def differs(self, number: int, hash_: str) -> bool:
        """Whether another push of this chain has the number."""
        return "" not in (hash_, known := self.hashes.get(number, "")) and known != hash_

    def has(self, number: int, hash_: str) -> bool:
        """Whether a push is one of this chain; only a host of the release before names no hash."""
        if number > self.newest:
            return False
        return not hash_ or not self.hashes or self.hashes.get(number) == hash_


class Shown:
    """The newest push of each repository that was published, and that each mirror shows.

    A push is a number and the hash of its record, "" where a release before says the number alone:
    after a restore or a promotion, another push may have the number of one that mirrors show. Only
    repositories with a published push are remembered, so a mirror cannot fill the memory.
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
        """Note that the stream has this push."""
        self._published.setdefault(repository, _Published()).add(number, hash_)
        self._published.move_to_end(repository)
        self._forget()

    def _forget(self) -> None:
        while len(self._published) > self._most:
            oldest, _ = self._published.popitem(last=False)
            self._applied.pop(oldest, None)

    def learn(self, repository: str, number: int, hash_: str) -> None:
        """Note the hash of a push of the log that was published before."""
        found = self._published.get(repository)
        if found is not None and number <= found.newest and not found.differs(number, hash_):
            found.add(number, hash_)

    def applied(self, host: str, repository: str, number: int, hash_: str = "") -> bool:
        """Note the newest push that a mirror shows; return whether that is news."""
        if repository not in self._published:
            return False
        found = self._applied.setdefault(repository, {})
        before = found.get(host)
        # A mirror whose repository was made anew may show an older push.
        found[host] = (number, hash_)
        return before != found[host]

    def knows(self, repository: str, number: int) -> bool:
        """Whether the hash of a push is known."""
        found = self._published.get(repository)
        return found is not None and number in found.hashes

    def is_published(self, repository: str, number: int, hash_: str = "") -> bool:
        """Whether the stream has this push."""
        found = self._published.get(repository)
        return found is not None and found.has(number, hash_)

    def showing(self, repository: str, number: int, hash_: str = "") -> frozenset[str]:
        """Return the mirrors that show this push: it, or a later one of the same chain.

        A mirror that shows a later push than the stream has is not counted until the stream has it:
        it may be the push of another chain.
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
    """Hints of changed documents, numbered, and the newest that each mirror has followed.

    A mirror that has followed a hint looked at the document after it: it has the change that the
    hint was for, among those that came since. Numbers are those of one relay, by its `boot`.
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
        """Note that the stream has this hint."""
        self._published[document] = max(hint.number, self._published.get(document, 0))

    def is_published(self, document: str, hint: Hint) -> bool:
        """Whether the stream has this hint, or one after it."""
        return self._published.get(document, 0) >= hint.number

    def brought(self, message: Brought) -> bool:
        """Note that a mirror has followed a hint; return whether that is news."""
        is_ours = message.boot == self.boot and 0 < message.number <= self._number
        if not is_ours or message.document not in FIRST:
            return False
        found = self._followed.setdefault(message.document, {})
        if message.number <= found.get(message.host, 0):
            return False
        found[message.host] = message.number
        return True

    def showing(self, document: str, hint: Hint) -> frozenset[str]:
        """Return the mirrors that have followed this hint."""
        found = self._followed.get(document, {})
        return frozenset(host for host, newest in found.items() if newest >= hint.number)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a session reads of its push, or of its change of a document."""

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
    """Whether a push gets the required copy, by the answer to a push that begins."""
    return required_copy.can_be_had(required, takes=found.broker, live=found.visible)


def is_final(found: Answer, *, settled: bool, takes: bool) -> bool:
    """Whether waiting longer changes nothing.

    The stream and each live mirror have the change; or the broker `takes` none. A relay that is
    not `settled` may hear of further mirrors, or reach the broker again: it or the broker is being
    restarted, and mirrors that lost both are still in use.
    """
    if found.problem:
        return True
    if not found.broker:
        return settled and not takes
    return not found.slow and (settled or not found.down)

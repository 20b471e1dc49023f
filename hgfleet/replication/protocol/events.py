"""Push events: when an event is due, and its content. Pure.

An event says that every live mirror shows a push, so that a program that reads it may clone from
any mirror. It is a JSON object; docs/push-events.md describes it. It has neither the address of the
client nor the key of the user: both stay on the hosts of the site.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.identity import is_identity
from hgfleet.core.names import path_problem
from hgfleet.pushlog.record import hash_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.pushlog.record import Record
    from hgfleet.replication.protocol.streams import Streamed

VERSION: Final = 1

_HASH: Final = re.compile(r"[0-9a-f]{64}")

MOST: Final = 100
"""Most entries of each list of an event; the count next to a list counts all."""

WEEK_SECONDS: Final = 7 * 24 * 3600.0


def is_due(
    showing: Collection[str],
    live: Collection[str],
    mirrors: Collection[str],
    *,
    is_settled: bool,
) -> bool:
    """Whether all mirrors that count show a push.

    The live mirrors count; if there are none, the event is due when the push is published. Until a
    lease has passed since the connection to the broker, all mirrors of the site count, because the
    relay may not have heard a live mirror yet.
    """
    return set(showing).issuperset(live if is_settled else mirrors)


def since(started: float, *, has_events: bool) -> float:
    """Return since when pushes have events, if the relay does not remember it (seconds).

    If the stream has events, the relay has lost its memory, and the stream has events of a week. If
    it has none, this is the first start, and earlier pushes have no events.
    """
    return started - WEEK_SECONDS if has_events else started


def is_announced(
    entry: Entry, streamed: Streamed | None, begin: float, out: Mapping[int, str] | None = None
) -> bool:
    """Whether the event of this push, or of a later push of its chain, was sent.

    `streamed` is the stream's last event of the repository, None if there is none; `begin` is the
    result of `since`. If pushes were given up, another push may have the number of a push whose
    event was sent: then `out` has the hashes of the events in the stream.
    """
    record = entry.record
    if streamed is None:
        return record.time < begin * 1000
    if out and out.get(record.id) not in (None, "", entry.hash):
        return False
    return (record.epoch, record.id) <= (streamed.epoch, streamed.id)


def has_event(record: Record) -> bool:
    """Whether a record gets an event: adoptions and removals are not pushes."""
    return record.kind == "push"


def body(record: Record, path: str, *, is_public: bool, is_again: bool = False) -> bytes:
    """Return the event of a push to the repository that is at a path now.

    `is_again` says that a push with this number, or a later number, was given up before.
    """
    phases = Counter(new for _node, _old, new in record.phases)
    event: dict[str, Any] = {
        "version": VERSION,
        "repository": path,
        "identity": record.repository,
        "public": is_public,
        "push": record.id,
        "hash": hash_of(record.line()),
        "epoch": record.epoch,
        "user": record.user,
        "time": record.time / 1000,
        "changesets": {
            "count": len(record.changesets),
            "first": record.changesets[0] if record.changesets else None,
            "last": record.changesets[-1] if record.changesets else None,
            "nodes": record.changesets[:MOST],
        },
        "heads": {
            "removed": _list(record.heads.gone),
            "added": _list(record.heads.new),
            "digest": record.heads.digest,
        },
        "bookmarks": _list(
            [{"name": name, "from": old, "to": new} for name, old, new in record.bookmarks]
        ),
        "phases": dict(sorted(phases.items())),
        "obsolete": len(record.markers),
    }
    if is_again:
        event["again"] = True
    return json.dumps(event, separators=(",", ":")).encode("ascii")


def _list(values: Sequence[object]) -> dict[str, object]:
    return {"count": len(values), "first": list(values[:MOST])}


@dataclass(frozen=True, slots=True)
class Event:
    """An event, as a program that delivers it sees it."""

    path: str
    repository: str
    number: int
    is_public: bool
    body: bytes
    epoch: int = 1
    hash: str = ""
    """Hash of the push, if another push with its number may have had an event."""

    @property
    def id(self) -> str:
        """The name of the event, which is the same at each delivery.

        After a promotion or a loss another push may have the number of a push that was given up.
        """
        made = f"{self.repository}.{self.number}"
        if self.hash:
            return f"{made}.{self.epoch}.{self.hash[:16]}"
        return made if self.epoch == 1 else f"{made}.{self.epoch}"


def decode(content: bytes) -> Event:
    """Read an event of the stream; raises ValueError."""
    try:
        data = json.loads(content)
    except RecursionError as error:
        raise ValueError("an event is nested too deeply") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f"no event of version {VERSION}: {content!r:.200}")
    path, identity, number = (data.get(name) for name in ("repository", "identity", "push"))
    # An event of the previous release has no epoch.
    is_public, epoch = data.get("public"), data.get("epoch", 1)
    # If its number was given up, the event is also named by its hash.
    hash_ = data.get("hash") or "none" if data.get("again") is True else ""
    right = (
        isinstance(path, str)
        and not path_problem(path)
        and isinstance(identity, str)
        and is_identity(identity)
        and type(number) is int
        and 0 < number < 2**53
        and isinstance(is_public, bool)
        and type(epoch) is int
        and 0 < epoch < 2**31
        and (not hash_ or (isinstance(hash_, str) and bool(_HASH.fullmatch(hash_))))
    )
    if not right:
        raise ValueError(f"no event of a push: {content!r:.200}")
    return Event(str(path), str(identity), int(number or 0), bool(is_public), content, epoch, hash_)

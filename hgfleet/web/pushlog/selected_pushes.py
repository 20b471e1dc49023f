"""Selection of pushes for an answer: a query, the push log, and what hg shows of its changesets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from hgfleet.pushlog.tables import Selection
from hgfleet.web.pushlog import query as pushlog_query
from hgfleet.web.pushlog.query import MOST_CHANGESETS, NEWEST, PAGE, Query, QueryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hgfleet.pushlog.tables import Push
    from hgfleet.pushlog.view import View

MOST_SEEN: Final = 1000
"""Changesets of a push that are looked at for a page."""

_SHORTEST_PREFIX: Final = 6
"""Digits of a hash from which on the push log is searched for a hidden changeset."""


class Sight(Enum):
    """What a reader sees of a changeset."""

    PLAIN = "plain"
    OBSOLETE = "obsolete"
    NOTHING = "nothing"
    """Secret, or removed from the repository."""


class History(Protocol):
    """The changesets of a repository, as hg serves them."""

    def sight(self, node: bytes) -> Sight:
        """Return what a reader sees of a changeset."""

    def resolve(self, name: str) -> bytes | None:
        """Return the changeset that a hash, prefix, tag, bookmark, branch or number names."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A push in an answer, with the changesets that a reader sees; parents first."""

    push: Push
    changesets: tuple[bytes, ...]
    obsolete: tuple[bytes, ...] = ()
    is_part: bool = False
    """Whether the push has changesets that were not looked at."""


@dataclass(frozen=True, slots=True)
class PageOf:
    """A page of pushes for people, newest first."""

    shown: list[Shown]
    number: int
    count: int
    total: int
    """Pushes on all pages."""


def for_programs(view: View, history: History, query: Query) -> list[Shown]:
    """Return the pushes that a query selects, oldest first; raises QueryError."""
    wanted = selection(view, history, query)
    # A push that a query names is in the answer in any case.
    named = bool(query.changesets) or query.with_empty
    wanted = replace(wanted, has_changesets=not named)
    if query.is_open:
        pushes = view.newest(wanted, NEWEST)[::-1]
    else:
        pushes = view.pushes(wanted, pushlog_query.MOST_PUSHES + 1)
    changesets = sum(
        min(push.changesets, 1) if query.tips_only else push.changesets for push in pushes
    )
    if sentence := pushlog_query.too_many(len(pushes), changesets, query):
        raise QueryError(sentence)
    return [show(view, history, push, query) for push in pushes]


def for_people(view: View, history: History, query: Query) -> PageOf:
    """Return a page of the pushes that a query selects; raises QueryError."""
    wanted = selection(view, history, query)
    total = view.count(wanted)
    count = max(1, -(-total // PAGE))
    if query.page > count:
        raise QueryError("There is no such page.", 404)
    pushes = view.newest(wanted, PAGE, skip=PAGE * (query.page - 1))
    shown = [show(view, history, push, query, MOST_SEEN) for push in pushes]
    return PageOf(shown, query.page, count, total)


def show(
    view: View, history: History, push: Push, query: Query, most: int = MOST_CHANGESETS
) -> Shown:
    """Return a push with what a reader sees of it, of its last `most` changesets."""
    nodes = view.nodes(push.id) if push.changesets else []
    if push.kind == "adoption":
        nodes = [node for node, of in _named(view, history, query) if of == push.id]
    if query.tips_only:
        most = 1
    seen: dict[Sight, list[bytes]] = {sight: [] for sight in Sight}
    for node in nodes[-most:]:
        seen[history.sight(node)].append(node)
    is_part = len(nodes) > most
    return Shown(push, tuple(seen[Sight.PLAIN]), tuple(seen[Sight.OBSOLETE]), is_part)


def selection(view: View, history: History, query: Query) -> Selection:
    """Return the conditions of a query; raises QueryError for an unknown changeset."""
    after, to = query.start_id, query.end_id
    if query.from_change is not None:
        _, after = located(view, history, query.from_change)
    if query.to_change is not None:
        _, to = located(view, history, query.to_change)
    ids = None
    if query.changesets:
        ids = tuple(sorted({push for _, push in _named(view, history, query)}))
    start, end = query.start_time, query.end_time
    return Selection(
        after_id=after,
        to_id=to,
        # Both dates are exclusive, and a push has its date in whole seconds.
        from_time=None if start is None else (start + 1) * 1000,
        until_time=None if end is None else end * 1000,
        users=query.users,
        ids=ids,
    )


def _named(view: View, history: History, query: Query) -> list[tuple[bytes, int]]:
    return [located(view, history, name) for name in query.changesets]


def located(view: View, history: History, name: str) -> tuple[bytes, int]:
    """Return a changeset and its push; raises QueryError for an unknown changeset.

    A changeset that no push names was there before the log: it belongs to the adoption, or to no
    push (0) where there is none.
    """
    if pushlog_query.is_node(name):
        node: bytes | None = bytes.fromhex(name)
    else:
        node = history.resolve(name) or _hidden(view, history, name)
    if node is None or history.sight(node) is Sight.NOTHING:
        raise QueryError(f"unknown revision '{name}'", 404)
    push = view.push_of(node)
    if push is None:
        adoption = view.adoption()
        push = adoption.id if adoption else 0
    return node, push


def _hidden(view: View, history: History, prefix: str) -> bytes | None:
    """Return the only obsolete changeset with a prefix of hexadecimal digits."""
    digits = prefix.lower()
    if not _SHORTEST_PREFIX <= len(digits) <= 40 or set(digits) - set("0123456789abcdef"):
        return None
    return _only(node for node in view.named(digits) if history.sight(node) is Sight.OBSOLETE)


def _only(nodes: Iterable[bytes]) -> bytes | None:
    listed = list(nodes)
    return listed[0] if len(listed) == 1 else None

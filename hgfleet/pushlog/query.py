"""Search in a push log: which records match, and the push of each changeset. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.pushlog.record import Node, Record

_RANGE: Final = re.compile(r"(?P<first>[0-9]{1,18})?(?:(?P<to>:)(?P<last>[0-9]{1,18})?)?")


class Query(NamedTuple):
    """Conditions on a record; None is no condition. A date is in seconds since 1970."""

    user: Callable[[str], bool] | None = None
    date: Callable[[float], bool] | None = None
    ids: tuple[int, int | None] | None = None
    changesets: frozenset[Node] | None = None

    def fits(self, record: Record) -> bool:
        """Whether a record meets all conditions."""
        if self.ids is not None:
            first, last = self.ids
            if record.id < first or (last is not None and record.id > last):
                return False
        if self.user is not None and not self.user(record.user):
            return False
        if self.date is not None and not self.date(record.time / 1000):
            return False
        return self.changesets is None or not self.changesets.isdisjoint(record.changesets)


def ids(text: str) -> tuple[int, int | None]:
    """Read "42", "40:50", "40:" or ":50". Raises UsageError."""
    match = _RANGE.fullmatch(text.strip())
    if not match or not (match["first"] or match["last"]):
        raise UsageError(f"got {text!r:.60} as ids of pushes, expected 42, 40:50, 40: or :50")
    first = int(match["first"] or 0)
    if not match["to"]:
        return first, first
    return first, int(match["last"]) if match["last"] else None


def pushes_of(records: Iterable[Record]) -> dict[Node, Record]:
    """Return the push of each changeset that a record names and no later record removed."""
    pushes: dict[Node, Record] = {}
    for record in records:
        if record.kind == "strip":
            for node in record.changesets:
                pushes.pop(node, None)
        else:
            pushes.update(dict.fromkeys(record.changesets, record))
    return pushes

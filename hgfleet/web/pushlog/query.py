"""Queries of the push log over HTTP, as clients of hg.mozilla.org's pushlog write them. Pure.

The parameters follow its public documentation ("Pushlog" in the documentation of
version-control-tools): of two lower bounds the first of startdate, fromchange, startID counts, of
two upper bounds the first of enddate, tochange, endID. Without any bound, user or changeset the
answer is the newest pushes. An unknown parameter is ignored. Their log has only pushes with
changesets, and clients take the last changeset of each push; so here pushes of only phases,
bookmarks and markers are left out unless `empty` is given, a parameter of our own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JSON: Final = "pushes"
HTML: Final = "pushloghtml"
FEED: Final = "pushlog"
ABOUT: Final = "repoinfo"

STYLES: Final[Mapping[str, frozenset[str]]] = {
    JSON: frozenset({"json"}),
    HTML: frozenset({"", "paper"}),
    FEED: frozenset({"", "atom"}),
    ABOUT: frozenset({"json"}),
}
"""The commands and the styles that each is served in: "json-pushes", "pushloghtml", ..."""

NEWEST: Final = 10
"""Pushes of a JSON answer to a query without any condition, as on hg.mozilla.org."""
PAGE: Final = 20
"""Pushes of a page for people, and of a feed."""
CHEAP_PUSHES: Final = 500
"""Pushes of an answer that a worker computes itself (some 10 ms)."""
MOST_PUSHES: Final = 5000
MOST_CHANGESETS: Final = 50_000
MOST_FULL: Final = 2000
"""Changesets of an answer with their authors, descriptions and files."""
MOST_VALUES: Final = 100
"""Values of `changeset`, and of `user`."""
LARGEST_PAGE_NUMBER: Final = 1_000_000

_MOST_PARAMETERS: Final = 256
_LARGEST_ID: Final = 2**62
_LONGEST_NAME: Final = 256
_ID = re.compile(r"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,12}")
_DATE = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T](?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?)?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?"
)
_NODE = re.compile(r"[0-9a-fA-F]{40}")
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


class QueryError(Exception):
    """A query that has no answer: the status of the response and a sentence."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.status = status


@dataclass(frozen=True, slots=True)
class Query:
    """A question about pushes; times in seconds since 1970, UTC."""

    start_id: int | None = None
    end_id: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    from_change: str | None = None
    to_change: str | None = None
    users: tuple[str, ...] = ()
    changesets: tuple[str, ...] = ()
    tips_only: bool = False
    full: bool = False
    version: int = 1
    with_empty: bool = False
    page: int = 1

    @property
    def is_open(self) -> bool:
        """Whether there is no condition: the newest pushes are the answer."""
        return not self.users and not self.changesets and not self.has_bounds

    @property
    def has_bounds(self) -> bool:
        """Whether there is a lower or an upper bound."""
        bounds = (self.start_id, self.end_id, self.start_time, self.end_time)
        changes = (self.from_change, self.to_change)
        return any(bound is not None for bound in (*bounds, *changes))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of changesets in the query."""
        bounds = (self.from_change, self.to_change)
        return (*self.changesets, *(name for name in bounds if name is not None))


def parse(query: str, page: str = "") -> Query:
    """Read a query string, and the number of a page out of the path; raises QueryError."""
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            encoding="utf-8",
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except UnicodeError:
        raise QueryError("The parameters are not UTF-8.") from None
    except ValueError:
        raise QueryError(f"There are more than {_MOST_PARAMETERS} parameters.") from None
    given: dict[str, list[str]] = {}
    for name, value in pairs:
        given.setdefault(name, []).append(value)
    start = _bound(given, "startdate", "fromchange", "startID")
    end = _bound(given, "enddate", "tochange", "endID")
    return Query(
        start_id=_id(start, "startID"),
        end_id=_id(end, "endID"),
        start_time=_date(start, "startdate"),
        end_time=_date(end, "enddate"),
        from_change=_change(start, "fromchange"),
        to_change=_change(end, "tochange"),
        users=_several(given, "user"),
        changesets=_several(given, "changeset"),
        tips_only=_last(given, "tipsonly") == "1",
        full="full" in given,
        with_empty="empty" in given,
        version=_version(_last(given, "version")),
        page=_page(page),
    )


def is_cheap(command: str, query: str) -> bool:
    """Whether a worker answers itself: few pushes, and the whole answer is in the index.

    A query error is cheap too.
    """
    if command != JSON:
        return False
    try:
        asked = parse(query)
    except QueryError:
        return True
    is_short = asked.is_open or bool(asked.changesets)
    if asked.start_id is not None and asked.end_id is not None:
        is_short = asked.end_id - asked.start_id <= CHEAP_PUSHES
    return is_short and not asked.full and all(map(is_node, asked.names))


def is_node(name: str) -> bool:
    """Whether a name is a whole changeset hash, and so neither a tag nor a prefix."""
    return _NODE.fullmatch(name) is not None


def too_many(pushes: int, changesets: int, query: Query) -> str | None:
    """Return the sentence for an answer above the limits, None within them."""
    limit = MOST_FULL if query.full else MOST_CHANGESETS
    if pushes <= MOST_PUSHES and changesets <= limit:
        return None
    kind = "an answer with full" if query.full else "an answer"
    return (
        f"This query selects more than {kind} holds ({MOST_PUSHES} pushes, {limit} changesets); "
        "ask for a part of it with startID and endID, or for tipsonly=1."
    )


def seconds_of(text: str) -> int | None:
    """Read a date: seconds since 1970, or ISO 8601 down to the second, UTC without a zone."""
    if _SECONDS.fullmatch(text):
        return int(text)
    date = _DATE.fullmatch(text)
    if date is None or (date["zone"] and not date["hour"]):
        return None
    zone = (date["zone"] or "Z").replace("Z", "+00:00")
    clock = f"{date['hour'] or '00'}:{date['minute'] or '00'}:{date['second'] or '00'}"
    try:
        moment = datetime.fromisoformat(f"{date['date']}T{clock}{zone}")
        return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    except (OverflowError, ValueError):
        return None


def _bound(given: Mapping[str, Sequence[str]], *names: str) -> tuple[str, str]:
    """Return the parameter that is the bound, with its value; empty names for none."""
    for name in names:
        if name in given:
            return name, given[name][-1]
    return "", ""


def _id(bound: tuple[str, str], name: str) -> int | None:
    if bound[0] != name:
        return None
    if not _ID.fullmatch(bound[1]):
        raise QueryError(f"{name} is not a push ID: expected a whole number from 0 on.")
    return min(int(bound[1]), _LARGEST_ID)


def _date(bound: tuple[str, str], name: str) -> int | None:
    if bound[0] != name:
        return None
    seconds = seconds_of(bound[1].strip(" "))
    if seconds is None:
        raise QueryError(
            f"{name} is not a date: expected seconds since 1970, YYYY-MM-DD or "
            "YYYY-MM-DD HH:MM:SS (UTC)."
        )
    return seconds


def _change(bound: tuple[str, str], name: str) -> str | None:
    if bound[0] != name:
        return None
    return _printable(bound[1], name)


def _several(given: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    values = given.get(name, ())
    if len(values) > MOST_VALUES:
        raise QueryError(f"There are more than {MOST_VALUES} values of {name}.")
    return tuple(dict.fromkeys(_printable(value, name) for value in values))


def _printable(value: str, name: str) -> str:
    if not _PRINTABLE.fullmatch(value):
        raise QueryError(
            f"{name} has no value, more than {_LONGEST_NAME} characters or control characters."
        )
    return value


def _last(given: Mapping[str, Sequence[str]], name: str) -> str | None:
    values = given.get(name)
    return values[-1] if values else None


def _version(value: str | None) -> int:
    if value not in (None, "1", "2"):
        raise QueryError("version parameter must be 1 or 2")
    return int(value or "1")


def _page(text: str) -> int:
    if not text:
        return 1
    number = int(text) if re.fullmatch(r"[0-9]{1,7}", text) else 0
    if not 1 <= number <= LARGEST_PAGE_NUMBER:
        raise QueryError("There is no such page.", 404)
    return number

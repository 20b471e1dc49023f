"""Addresses that hgweb with other template sets gave out, and pages larger than ours.

Links to `?style=gitweb`, `/gitweb-log` and `/summary` are in mails, bug reports and wikis. They
lead to the page with the same content. A page of too many changesets is cut to the largest page.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_plus

MOST_CHANGESETS: Final = 5000
"""The largest `revcount` of a page: rendering 5,000 changesets takes seconds."""

FORMER_STYLES: Final = frozenset({"coal", "gitweb", "monoblue", "spartan"})
"""Template sets of hgweb that are not served: they write a description into the page as it is."""

SUMMARY: Final = "summary"
SUMMARY_IS: Final = "shortlog"
"""The page that has most of what `summary` shows; the served template set has no such page."""


def changesets_asked(value: str) -> int:
    """Read `revcount` as hgweb does, which leaves it to int(): " +5_000" is 5000.

    A value that hgweb ignores counts as 0. Python refuses to read more than 4,300 digits.
    """
    try:
        return int(value)
    except ValueError:
        return 0


def served(rest: str, query: str) -> tuple[str, str]:
    """Return the path in a repository ("" or "/...") and the query that are served for these."""
    return _path(rest), "&".join(pair for pair in map(_pair, query.split("&")) if pair is not None)


def _path(rest: str) -> str:
    segments = rest.split("/")
    if len(segments) < 2:
        return rest
    style, dash, command = segments[1].partition("-")
    if dash and style in FORMER_STYLES:
        segments[1] = command
    if segments[1] == SUMMARY:
        segments[1] = SUMMARY_IS
    return "/".join(segments)


def _pair(pair: str) -> str | None:
    """Return a parameter of the query as it is served; None if it is left out."""
    name, equals, value = pair.partition("=")
    match unquote_plus(name):
        case "style" if unquote_plus(value) in FORMER_STYLES:
            return None
        case "cmd" if unquote_plus(value) == SUMMARY:
            return f"{name}{equals}{SUMMARY_IS}"
        case "revcount" if changesets_asked(unquote_plus(value)) > MOST_CHANGESETS:
            return f"{name}{equals}{MOST_CHANGESETS}"
    return pair

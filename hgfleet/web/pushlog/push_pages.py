"""Rendering of pushes: JSON, an Atom feed, a page. Everything out of a repository is escaped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from hgfleet.web.http import feeds, pages
from hgfleet.web.pushlog.query import HTML

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.pushlog.tables import Push
    from hgfleet.web.pushlog.selected_pushes import Shown

MOST_SHOWN: Final = 50
"""Changesets of a push on a page and in a feed."""

PROOFS: Final = {
    "key": "with an SSH key",
    "certificate": "with a certificate",
    "operator": "as an operator",
}
"""The kind of proof of a push, in words. Which key it was stays on the host."""

_LONGEST_TITLE: Final = 200


@dataclass(frozen=True, slots=True)
class Line:
    """A changeset as a line of a page."""

    node: str
    author: str
    summary: str
    """The first line of its description."""
    is_obsolete: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A push on a page, with the first `MOST_SHOWN` of its changesets, newest first."""

    push: Push
    lines: tuple[Line, ...]
    seen: int = 0
    """Changesets of the push that a reader sees."""
    is_part: bool = False
    """Whether the push has still more, which were not counted."""

    @property
    def more(self) -> str:
        """The words about changesets without a line, "" if each has a line."""
        if self.is_part:
            return f"and more than {self.seen - len(self.lines)} more changesets"
        return f"and {self.seen - len(self.lines)} more" if self.seen > len(self.lines) else ""


@dataclass(frozen=True, slots=True)
class Place:
    """The repository of a page: the address of the site ("https://host"), its path, the query."""

    site: str
    path: str
    """ "/team/project"."""
    query: str = ""

    @property
    def url(self) -> str:
        """The address of the repository."""
        return self.site + quote(self.path)

    def push_url(self, push: int) -> str:
        """The address of a page with only this push."""
        return f"{self.url}/{HTML}?startID={push - 1}&endID={push}"


def error_json(sentence: str) -> bytes:
    """Render an error as hgweb's JSON does."""
    return _json({"error": sentence})


def pushes_json(
    shown: Iterable[Shown], version: int, last_id: int, details: Callable[[bytes], Any] = bytes.hex
) -> bytes:
    """Render pushes; `details` makes a changeset of an answer."""
    pushes: dict[str, Any] = {}
    for answer in shown:
        pushes[str(answer.push.id)] = entry = {
            "changesets": [details(node) for node in answer.changesets],
            "date": answer.push.time // 1000,
            "user": answer.push.user,
        }
        if answer.obsolete:
            entry["obsoletechangesets"] = [details(node) for node in answer.obsolete]
    return _json(pushes if version == 1 else {"lastpushid": last_id, "pushes": pushes})


def document_json(document: Any) -> bytes:
    """Render a document."""
    return _json(document)


def feed(place: Place, rows: Iterable[Row]) -> bytes:
    """Render an Atom feed (RFC 4287), an entry a push, newest first."""
    listed = list(rows)
    updated = _stamp(listed[0].push) if listed else pages.stamp(0)
    page = f"{place.url}/{HTML}"
    name = _xml(place.path.strip("/"))
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<id>{_xml(page)}</id>",
        f"<title>Pushes to {name}</title>",
        f"<updated>{updated}</updated>",
        f'<link rel="self" href="{_xml(place.url)}/atom-pushlog"/>',
        f'<link rel="alternate" type="text/html" href="{_xml(page)}"/>',
    ]
    for row in listed:
        url = _xml(place.push_url(row.push.id))
        text = "\n".join(f"{line.node} {line.summary}" for line in row.lines)
        text += f"\n{row.more}" if row.more else ""
        parts += [
            "<entry>",
            f"<id>{url}</id>",
            f"<title>{_xml(_heading(row))}</title>",
            f"<updated>{_stamp(row.push)}</updated>",
            f'<link rel="alternate" type="text/html" href="{url}"/>',
            f"<author><name>{_xml(row.push.user) or 'unknown'}</name></author>",
            f'<content type="text">{_xml(text)}</content>',
            "</entry>",
        ]
    return ("\n".join(parts) + "\n</feed>\n").encode()


def html(place: Place, rows: Iterable[Row], paging: pages.Paging) -> bytes:
    """Render a page of pushes for people, newest first."""
    name = place.path.strip("/")
    home = quote(place.path)
    parts = [
        f'<h1><a href="/">Repositories</a> / <a href="{home}">{escape(name)}</a> / pushes</h1>'
    ]
    for row in rows:
        parts += _push_html(home, row)
    if not paging.total:
        parts.append('<p class="soft">There is no such push.</p>')
    parts.append(_links(home, paging, place.query))
    count = "1 push" if paging.total == 1 else f"{paging.total} pushes"
    feed_link = f'<a href="{home}/atom-pushlog">as a feed</a>'
    parts.append(
        f'<footer>{count}. The newest ones <a href="{home}/json-pushes?version=2">as JSON</a>, '
        f"{feed_link}.</footer>"
    )
    return pages.page(f"Pushes - {name}", "\n".join(parts))


def error_html(place: Place, phrase: str, sentence: str) -> bytes:
    """Render an error as a page."""
    return pages.error_html(place.path.strip("/"), phrase, sentence)


def summary(description: str) -> str:
    """Return the first line of a description, shortened."""
    first = description.strip().split("\n", 1)[0].strip()
    return first if len(first) <= _LONGEST_TITLE else first[: _LONGEST_TITLE - 1] + "…"


def _push_html(home: str, row: Row) -> list[str]:
    push = row.push
    alone = f"{home}/{HTML}?startID={push.id - 1}&amp;endID={push.id}"
    moment = datetime.fromtimestamp(push.time // 1000, UTC)
    when = f'<time datetime="{_stamp(push)}">{moment:%Y-%m-%d %H:%M:%S} UTC</time>'
    parts = [
        f'<h2 id="push{push.id}"><a href="{alone}">Push {push.id}</a></h2>',
        f'<p class="soft">{escape(_by(push))}, {when}</p>',
        "<ul>",
    ]
    for line in row.lines:
        # hgweb has no page of a changeset that it does not serve.
        node = f"<code>{line.node[:12]}</code>"
        if line.is_obsolete:
            parts.append(f"<li>{node}<span>obsolete</span></li>")
            continue
        parts.append(
            f'<li><a href="{home}/rev/{line.node}">{node}</a><span>{escape(line.summary)}</span>'
            f'<span class="soft">{escape(line.author)}</span></li>'
        )
    if not row.seen and push.kind == "push":
        parts.append('<li><span class="soft">no changesets</span></li>')
    if row.more:
        parts.append(f'<li><span class="soft">{row.more}</span></li>')
    parts.append("</ul>")
    return parts


def _by(push: Push) -> str:
    if push.kind == "adoption":
        return "All changesets from before the push log"
    if push.kind == "strip":
        return f"Changesets removed by {push.user}"
    return f"{push.user} {PROOFS[push.via]}"


def _heading(row: Row) -> str:
    if row.push.kind != "push":
        return f"push {row.push.id}: {_by(row.push)}"
    changesets = "1 changeset" if row.seen == 1 else f"{row.seen or 'no'} changesets"
    than = "more than " if row.is_part else ""
    return f"push {row.push.id} by {row.push.user}: {than}{changesets}"


def _links(home: str, paging: pages.Paging, query: str) -> str:
    if paging.count == 1:
        return ""
    kept = urlencode(parse_qsl(query, keep_blank_values=True))
    kept = escape(f"?{kept}") if kept else ""

    def link(number: int, relation: str, text: str) -> str:
        return f'<a href="{home}/{HTML}/{number}{kept}" rel="{relation}">{text}</a>'

    links = [f"Page {paging.number} of {paging.count}"]
    if paging.number > 1:
        links.insert(0, link(paging.number - 1, "prev", "Newer"))
    if paging.number < paging.count:
        links.append(link(paging.number + 1, "next", "Older"))
    return f"<nav>{' &middot; '.join(links)}</nav>"


def _stamp(push: Push) -> str:
    return pages.stamp(push.time // 1000)


def _xml(text: str) -> str:
    return escape(feeds.printable(text))


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"

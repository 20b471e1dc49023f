"""Commands of hgweb for the push log: json-pushes, pushloghtml, pushlog (Atom), json-repoinfo.

The page of a changeset gets a line about its push. Addresses of clients and fingerprints of keys
are never in an answer, and neither is the hash of a record: a reader who knows the rest of the
record would find the address by trying.

Written against Mercurial 7.2 (`mercurial/hgweb/webcommands.py`, `webutil.changesetentry`, the
template `paper/changeset.tmpl`). `testing/integration/web/test_web_core.py` fails when they change.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mercurial import error, extensions, phases, scmutil
from mercurial.hgweb import webcommands, webutil

from hgfleet.core.errors import PushlogError, TemporaryError
from hgfleet.pushlog.tables import Selection
from hgfleet.pushlog.view import View
from hgfleet.web.http import headers, pages
from hgfleet.web.http.journal import report
from hgfleet.web.pushlog import push_pages, selected_pushes
from hgfleet.web.pushlog import query as pushlog_query
from hgfleet.web.pushlog.push_pages import MOST_SHOWN, Line, Place, Row
from hgfleet.web.pushlog.query import QueryError
from hgfleet.web.pushlog.selected_pushes import Sight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hgfleet.pushlog.tables import Push
    from hgfleet.web.pushlog.query import Query
    from hgfleet.web.pushlog.selected_pushes import Shown

ATOM: Final = "application/atom+xml; charset=utf-8"

_NO_NAMES = re.compile(r"\.|null|-.*")
"""Names of no changeset, and numbers from the end."""

_DATE_ROW = re.compile(rb'(<tr>\s*<th class="date">date</th>.*?</tr>)', re.DOTALL)
_PUSH_ROW: Final = (
    b'{if(pushlogid, \'<tr>\n <th class="date">pushed</th>\n <td class="date">'
    b'<a href="{url|urlescape}pushloghtml?changeset={node}">push {pushlogid}</a> '
    b"{pushlogby|escape}, {pushlogdate|rfc822date}</td>\n</tr>')}"
)

_TROUBLE = (TemporaryError, PushlogError, OSError, sqlite3.Error)


class ServedHistory:
    """The changesets of a repository, as this hgweb object serves them."""

    def __init__(self, repository: Any) -> None:
        self._served = repository
        self._all = repository.unfiltered()
        self._hidden = repository.changelog.filteredrevs
        self._rev_of = self._all.changelog.index.get_rev

    def sight(self, node: bytes) -> Sight:
        """Return what a reader sees of a changeset."""
        rev = self._rev_of(node)
        if rev is None or rev < 0:
            return Sight.NOTHING
        if rev not in self._hidden:
            return Sight.PLAIN
        is_secret = self._all[rev].phase() >= phases.secret
        return Sight.NOTHING if is_secret else Sight.OBSOLETE

    def resolve(self, name: str) -> bytes | None:
        """Return the changeset that a hash, prefix, tag, bookmark, branch or number names."""
        if _NO_NAMES.fullmatch(name):
            return None
        try:
            context = scmutil.revsymbol(self._served, name.encode())
        except (error.RepoLookupError, error.LookupError, error.WdirUnsupported):
            return None
        rev = context.rev()
        node: bytes = context.node()
        return node if rev is not None and rev >= 0 else None

    def context(self, node: bytes) -> Any:
        """Return hg's changeset, which may be obsolete."""
        return self._all[node]

    def details(self, node: bytes) -> dict[str, Any]:
        """Return a changeset as json-pushes shows it with `full`."""
        context = self.context(node)
        changeset: dict[str, Any] = {
            "author": _text(context.user()),
            "branch": _text(context.branch()),
            "desc": _text(context.description()),
            "files": [_text(name) for name in context.files()],
            "node": context.hex().decode("ascii"),
            "parents": [parent.hex().decode("ascii") for parent in context.parents()],
            "tags": [_text(tag) for tag in context.tags()],
        }
        before = self._all.obsstore.predecessors.get(node, ()) if self._all.obsstore else ()
        if before:
            changeset["precursors"] = [marker[0].hex() for marker in before]
        return changeset


def open_view(repository: Any) -> View:
    """Open the push log of a repository; raises the errors of `View`."""
    store, cache = repository.svfs.join(b""), repository.cachevfs.join(b"")
    return View(Path(os.fsdecode(store)), Path(os.fsdecode(cache)))


def pushes(web: Any) -> Any:
    """Answer /json-pushes."""

    def answer(view: View, history: ServedHistory, query: Query) -> bytes:
        shown = selected_pushes.for_programs(view, history, query)
        if query.full:
            return push_pages.pushes_json(shown, query.version, view.last_id, history.details)
        return push_pages.pushes_json(shown, query.version, view.last_id)

    return _answered(web, headers.JSON[1], answer)


def pushloghtml(web: Any) -> Any:
    """Answer /pushloghtml and /pushloghtml/PAGE."""

    def answer(view: View, history: ServedHistory, query: Query) -> bytes:
        page = selected_pushes.for_people(view, history, query)
        rows = [_row(history, shown) for shown in page.shown]
        paging = pages.Paging(page.number, page.count, page.total)
        return push_pages.html(_place(web), rows, paging)

    return _answered(web, headers.HTML[1], answer)


def pushlog(web: Any) -> Any:
    """Answer /pushlog and /atom-pushlog."""

    def answer(view: View, history: ServedHistory, query: Query) -> bytes:
        page = selected_pushes.for_people(view, history, query)
        return push_pages.feed(_place(web), [_row(history, shown) for shown in page.shown])

    return _answered(web, ATOM, answer)


def repoinfo(web: Any) -> Any:
    """Answer /json-repoinfo."""

    def answer(view: View, _history: ServedHistory, _query: Query) -> bytes:
        last = view.last()
        served = web.repo
        return push_pages.document_json(
            {
                "repository": _place(web).path.strip("/"),
                "identity": view.identity or None,
                "lastpushid": view.last_id,
                "lastpushdate": last.time // 1000 if last else None,
                "changesets": len(served.changelog),
                "heads": len(served.heads()),
                "tip": served[b"tip"].hex().decode("ascii"),
                "publishing": served.publishing(),
            }
        )

    return _answered(web, headers.JSON[1], answer)


def register() -> None:
    """Add the commands to hgweb, and the push to its page of a changeset."""
    for command in (pushes, pushloghtml, pushlog, repoinfo):
        name = command.__name__
        setattr(webcommands, name, webcommands.webcommand(name.encode("ascii"))(command))
    extensions.wrapfunction(webutil, "changesetentry", _with_push)


def with_push_row(name: bytes, template: bytes) -> bytes:
    """Return the template of a changeset's page with a row about its push."""
    if name != b"changeset" or b'id="changesetEntry"' not in template:
        return template
    return _DATE_ROW.sub(lambda found: found[1] + b"\n" + _PUSH_ROW, template, count=1)


class _PushOf:
    """The push of a changeset, looked up when a template asks for it."""

    def __init__(self, web: Any, node: bytes) -> None:
        self._web = web
        self._node = node

    @cached_property
    def push(self) -> Push | None:
        """The newest push, or the adoption; None if it is unknown."""
        try:
            with open_view(self._web.repo) as view:
                push_id = view.push_of(self._node)
                if push_id is None:
                    return view.adoption()
                listed = view.pushes(Selection(ids=(push_id,)), 1)
                return listed[0] if listed else None
        except _TROUBLE as problem:
            _note(problem)
            return None

    def by(self) -> bytes:
        """Return who pushed, with what."""
        if self.push is None:
            return b""
        if self.push.kind == "adoption":
            return b"or before it"
        return f"by {self.push.user} {push_pages.PROOFS[self.push.via]}".encode("ascii")


def _with_push(original: Callable[..., Any], web: Any, context: Any) -> Any:
    """Add the push of a changeset to what its page shows."""
    entry = original(web, context)
    push_of = _PushOf(web, context.node())
    entry["pushlogid"] = lambda _context, _mapping: b"%d" % push_of.push.id if push_of.push else b""
    entry["pushlogby"] = lambda _context, _mapping: push_of.by()
    entry["pushlogdate"] = lambda _context, _mapping: (
        (push_of.push.time // 1000 if push_of.push else 0),
        0,
    )
    return entry


def _note(problem: Exception) -> None:
    """Tell the operators, if a line can be written, why a push log cannot be read."""
    with contextlib.suppress(OSError):
        report("pushlog", str(problem))


def _answered(
    web: Any, content_type: str, answer: Callable[[View, ServedHistory, Query], bytes]
) -> Any:
    """Send an answer, or the error in the form of its type."""
    status = HTTPStatus.OK
    try:
        query = pushlog_query.parse(web.req.querystring.decode("latin-1"), _page(web))
        with open_view(web.repo) as view:
            body = answer(view, ServedHistory(web.repo), query)
    except QueryError as refused:
        status, sentence = HTTPStatus(refused.status), refused.sentence
    except _TROUBLE as problem:
        _note(problem)
        status = HTTPStatus.SERVICE_UNAVAILABLE
        sentence = "The push log of this repository cannot be read right now; try again later."
    if status is not HTTPStatus.OK:
        content_type, body = _error(web, content_type, status, sentence)
    web.res.status = f"{status.value} {status.phrase}".encode("ascii")
    web.res.headers[b"Content-Type"] = content_type.encode("ascii")
    if headers.is_page(content_type):
        policy = pages.CONTENT_SECURITY_POLICY.encode("ascii")
        web.res.headers[b"Content-Security-Policy"] = policy
    web.res.setbodybytes(body)
    return web.res.sendresponse()


def _error(web: Any, content_type: str, status: HTTPStatus, sentence: str) -> tuple[str, bytes]:
    if headers.is_page(content_type):
        return content_type, push_pages.error_html(_place(web), status.phrase, sentence)
    if content_type == ATOM:
        return headers.PLAIN_TEXT[1], sentence.encode() + b"\n"
    return content_type, push_pages.error_json(sentence)


def _row(history: ServedHistory, shown: Shown) -> Row:
    """Return a push for a page: its changesets newest first, obsolete changesets last."""
    lines = [
        Line(
            context.hex().decode("ascii"),
            _text(context.user()),
            push_pages.summary(_text(context.description())),
        )
        for context in map(history.context, _last(shown.changesets, MOST_SHOWN))
    ]
    obsolete = _last(shown.obsolete, MOST_SHOWN - len(lines))
    lines += [Line(node.hex(), "", "obsolete", is_obsolete=True) for node in obsolete]
    seen = len(shown.changesets) + len(shown.obsolete)
    return Row(shown.push, tuple(lines), seen, is_part=shown.is_part)


def _last(nodes: tuple[bytes, ...], most: int) -> Iterable[bytes]:
    return reversed(nodes[-most:] if most else ())


def _place(web: Any) -> Place:
    request = web.req
    return Place(
        request.advertisedbaseurl.decode("ascii"),
        request.apppath.decode("ascii"),
        request.querystring.decode("ascii"),
    )


def _page(web: Any) -> str:
    """Return the number of the page in the path, as it is written there."""
    segments: list[bytes] = (web.req.dispatchpath or b"").split(b"/")
    return segments[1].decode("latin-1") if len(segments) > 1 else ""


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")

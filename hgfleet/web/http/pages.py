"""Rendering of the index, as HTML and as JSON, and of error pages.

Self-contained: no script, no image, no font; the style sheet is in the page and its hash in the
Content-Security-Policy.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.registry.model.registry import Registry

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9d9e0; --link: #0b5cad;
  --page: #fff; --box: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #edeef0; --soft: #b0b4ba; --line: #3a3d42; --link: #7cb8ff; --page: #16181b;
    --box: #212327; } }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--page); font: 1rem/1.55 system-ui, sans-serif; }
a { color: var(--link); text-decoration: none; }
a:hover, a:focus { text-decoration: underline; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .25rem; }
p { margin: .25rem 0; }
.soft, footer, time { color: var(--soft); }
code, pre { font: .9rem/1.6 ui-monospace, monospace; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 6px; margin: 1rem 0;
  padding: .6rem .9rem; overflow-x: auto; }
ul { list-style: none; margin: .5rem 0 0; padding: 0; border-top: 1px solid var(--line); }
li { display: flex; flex-wrap: wrap; gap: 0 1.25rem; padding: .6rem 0;
  border-bottom: 1px solid var(--line); }
li > a { flex: 0 0 16rem; font-weight: 600; overflow-wrap: anywhere; }
li > span { flex: 1 1 18rem; }
time { font-size: .875rem; white-space: nowrap; }
footer { margin-top: 3rem; font-size: .875rem; }
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A repository of an index; `changed` in seconds since the epoch, None: never."""

    path: str
    description: str
    namespace: str
    changed: int | None


@dataclass(frozen=True, slots=True)
class Paging:
    """The place of a page among others, and the number of repositories on all of them."""

    number: int = 1
    count: int = 1
    total: int = 0


def index_html(
    title: str,
    base_url: str,
    ssh_url: str,
    folder: str,
    registry: Registry,
    listed: Sequence[Row],
    reader: str | None = None,
    paging: Paging = Paging(),
) -> bytes:
    """Render the index of a folder for people.

    `reader` is the signed-in person, "" before sign-in, None on a server without sign-in.
    """
    heading = _crumbs(title, folder)
    about = registry.namespaces[folder].description if folder in registry.namespaces else ""
    example = listed[0].path if listed else "PATH"
    clone = f"hg clone {base_url}/{example}"
    if ssh_url and listed:
        clone += f"\nhg push {ssh_url}/{example}"
    parts = [f"<h1>{heading}</h1>"]
    if about:
        parts.append(f'<p class="soft">{escape(about)}</p>')
    if listed:
        parts.append(f"<pre>{escape(clone)}</pre>")
    else:
        parts.append('<p class="soft">There is no public repository yet.</p>')
    namespace = None
    for row in listed:
        if row.namespace != namespace:
            if namespace is not None:
                parts.append("</ul>")
            namespace = row.namespace
            if namespace and namespace != folder:
                parts.append(
                    f'<h2><a href="/{quote(namespace)}/">{escape(namespace)}/</a></h2>'
                    f'<p class="soft">{escape(registry.namespaces[namespace].description)}</p>'
                )
            parts.append("<ul>")
        parts.append(
            f'<li><a href="/{quote(row.path)}">{escape(row.path)}</a>'
            f"<span>{escape(row.description)}</span>{_time(row.changed)}</li>"
        )
    if namespace is not None:
        parts.append("</ul>")
    json_url = "/api/repositories" + ("/" + quote(folder) if folder else "")
    total = max(len(listed), paging.total)
    count = "1 repository" if total == 1 else f"{total} repositories"
    parts.append(_links(paging))
    who = ""
    if reader:
        who = f" As {escape(reader)} may read them."
    elif reader is not None:
        who = ' <a href="/login">Sign in</a> to see what is yours.'
    parts.append(f'<footer>{count}.{who} The same <a href="{json_url}">as JSON</a>.</footer>')
    page_title = f"{folder}/ - {title}" if folder else title
    return page(page_title, "\n".join(parts))


def index_json(
    base_url: str,
    ssh_url: str,
    registry: Registry,
    listed: Sequence[Row],
    following: str | None = None,
) -> bytes:
    """Render the index for programs; times are RFC 3339 in UTC, null before the first push.

    `following` is the address of the next page, None on the last page.
    """
    namespaces = sorted({row.namespace for row in listed if row.namespace})
    document = {
        "namespaces": [
            {"path": path, "description": registry.namespaces[path].description}
            for path in namespaces
        ],
        "repositories": [
            {
                "path": row.path,
                "description": row.description,
                "namespace": row.namespace or None,
                "url": f"{base_url}/{row.path}",
                **({"push_url": f"{ssh_url}/{row.path}"} if ssh_url else {}),
                "changed": None if row.changed is None else stamp(row.changed),
            }
            for row in listed
        ],
        **({"next": following} if following else {}),
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def error_html(title: str, heading: str, sentence: str) -> bytes:
    """Render an error: the cause and the way out."""
    body = (
        f"<h1>{escape(heading)}</h1><p>{escape(sentence)}</p>"
        f'<footer><a href="/">{escape(title)}</a></footer>'
    )
    return page(heading, body)


def _links(paging: Paging) -> str:
    """Render the links between the pages of an index, "" for a single page."""
    if paging.count == 1:
        return ""
    links = [f"Page {paging.number} of {paging.count}"]
    if paging.number > 1:
        links.insert(0, f'<a href="?page={paging.number - 1}" rel="prev">Previous</a>')
    if paging.number < paging.count:
        links.append(f'<a href="?page={paging.number + 1}" rel="next">Next</a>')
    return f"<nav>{' &middot; '.join(links)}</nav>"


def _crumbs(title: str, folder: str) -> str:
    if not folder:
        return escape(title)
    links = [f'<a href="/">{escape(title)}</a>']
    segments = folder.split("/")
    for count, segment in enumerate(segments[:-1], start=1):
        links.append(f'<a href="/{quote("/".join(segments[:count]))}/">{escape(segment)}</a>')
    links.append(escape(segments[-1]))
    return " / ".join(links)


def stamp(seconds: int) -> str:
    """Render a time in seconds since 1970 as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(seconds: int | None) -> str:
    if seconds is None:
        return "<time>empty</time>"
    moment = datetime.fromtimestamp(seconds, UTC)
    return f'<time datetime="{stamp(seconds)}">{moment:%Y-%m-%d %H:%M} UTC</time>'


def page(title: str, body: str) -> bytes:
    """Render a page around its body, which is HTML; the title is text."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        "</body>\n</html>\n"
    ).encode()

"""Pages about the bundles: `index.html` for readers, `bundles.json` for programs. Pure.

The page loads nothing from other hosts, and its Content-Security-Policy allows only its own style
and script. Neither file depends on the time: unchanged manifests give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.core.text import size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.bundles.decide.manifest import Entry

INDEX: Final = "index.html"
DATA: Final = "bundles.json"
CANARY: Final = "closed.txt"
CANARY_TEXT: Final = b"Whoever can read this without a signature should tell the operators.\n"
"""The object of a private store that shows whether requests without a signature are refused."""
MAX_AGE: Final = 300
"""Seconds for which a cache may keep both files."""

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Row:
    """A public repository; `bundles` are its entries in a store, by kind."""

    path: str
    description: str
    bundles: Mapping[str, Entry]


def data(rows: Sequence[Row], clone_url: str) -> bytes:
    """Render `bundles.json`; sizes are in bytes."""
    repositories = {
        row.path: {
            "description": row.description,
            **({"clone": f"{clone_url}/{row.path}"} if clone_url else {}),
            "bundles": [
                {
                    "kind": kind,
                    "url": entry.url,
                    "bundlespec": entry.bundlespec,
                    "sha256": entry.sha256,
                    "size": entry.size,
                    "changesets": entry.changesets,
                    "made": entry.made.strftime(_TIME),
                }
                for kind, entry in row.bundles.items()
            ],
        }
        for row in rows
    }
    return (json.dumps({"format": 1, "repositories": repositories}, indent=1) + "\n").encode()


_STYLE: Final = """
:root {
  color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif;
  --line: #8883; --quiet: #8881; --link: light-dark(#0b57a4, #8ab8f0);
}
body { margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1 { line-height: 1.2; margin: 0; }
a { color: var(--link); }
input { font: inherit; padding: .4rem .6rem; width: min(30rem, 70%); box-sizing: border-box; }
table { border-collapse: collapse; width: 100%; }
th { font-size: .85rem; font-weight: 600; padding: .3rem .6rem; text-align: left; }
td { padding: .1rem .6rem; vertical-align: top; white-space: nowrap; }
th.number, td.number { font-variant-numeric: tabular-nums; text-align: right; }
tbody { border-top: 1px solid var(--line); }
tbody:hover { background: var(--quiet); }
tbody tr:first-child td { padding-top: .6rem; }
tbody tr:last-child td, td[rowspan] { padding-bottom: .6rem; }
td[rowspan] { white-space: normal; width: 99%; }
td code { overflow-wrap: anywhere; user-select: all; }
td p { margin: 0; opacity: .75; }
button { background: none; border: 1px solid var(--line); border-radius: .3rem; color: inherit;
  cursor: pointer; font-size: .75rem; }
@media (max-width: 40rem) { th, td { padding-inline: .3rem; } }
[hidden] { display: none; }
"""

# Without the script the page has no search, no ages and no buttons.
_SCRIPT: Final = """
const repositories = [...document.querySelectorAll("tbody")];
const search = document.querySelector("input");
const found = document.querySelector("output");
function show() {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const repository of repositories) {
    repository.hidden = !words.every(word => repository.dataset.text.includes(word));
    count += !repository.hidden;
  }
  found.textContent = `${count} of ${repositories.length}`;
}
search.parentElement.hidden = false;
search.addEventListener("input", show);
show();
for (const time of document.querySelectorAll("time")) {
  const hours = Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 36e5));
  time.title = time.dateTime;
  time.textContent = hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}
// A browser has no clipboard for pages that did not come over TLS.
for (const code of navigator.clipboard ? document.querySelectorAll("td code") : []) {
  const button = document.createElement("button");
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "copied";
  });
  code.after(" ", button);
}
"""


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_hash(_STYLE)}'; script-src 'sha256-{_hash(_SCRIPT)}';"
    " base-uri 'none'; form-action 'none'"
)


def index(rows: Sequence[Row], clone_url: str, title: str) -> bytes:
    """Render `index.html`. All texts of the registry are escaped."""
    total = sum(entry.size for row in rows for entry in row.bundles.values())
    body = "\n".join(_row(row, clone_url) for row in rows)
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<p>{len(rows):,} repositories, {size(total)}. <code>hg clone</code> finds and checks its bundle by
itself; no user has to download a bundle here. For programs: <a href="{DATA}">{DATA}</a>.</p>
<p hidden><input type="search" placeholder="search" aria-label="search"> <output></output></p>
<table>
<thead><tr><th>repository</th><th>bundle</th><th class="number">size</th>
<th class="number">age</th></tr></thead>
{body}
</table>
<script>{_SCRIPT}</script>
</body>
</html>
"""
    return text.encode()


def _row(row: Row, clone_url: str) -> str:
    """Render a repository with its bundles, of which it has at least one: a line for each."""
    command = shlex.join(["hg", "clone", f"{clone_url}/{row.path}"]) if clone_url else ""
    about = f"<strong>{html.escape(row.path)}</strong>"
    if row.description:
        about += f"<p>{html.escape(row.description)}</p>"
    if command:
        about += f"<div><code>{html.escape(command)}</code></div>"
    first = f'<td rowspan="{len(row.bundles)}">{about}</td>'
    lines = [
        f'<td><a href="{html.escape(entry.url)}">{html.escape(kind)}</a></td>'
        f'<td class="number">{size(entry.size)}</td><td class="number">'
        f'<time datetime="{entry.made.strftime(_TIME)}">{entry.made:%Y-%m-%d}</time></td>'
        for kind, entry in row.bundles.items()
    ]
    body = "\n".join(f"<tr>{cells}</tr>" for cells in [first + lines[0], *lines[1:]])
    searched = html.escape(f"{row.path} {row.description}".lower())
    return f'<tbody data-text="{searched}">\n{body}\n</tbody>'

"""What lies beside the bundles for people and programs: `index.html` and `bundles.json`. Pure.

The page has nothing of other hosts, and a Content-Security-Policy that allows just its own style
and script. Neither file depends on the time it is made at: unchanged manifests give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.report import size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.bundles.manifest import Entry

INDEX: Final = "index.html"
DATA: Final = "bundles.json"
MAX_AGE: Final = 300
"""Seconds for which a cache may keep the two."""

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Row:
    """One public repository; `bundles` are its entries in one store, by kind."""

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
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
input { font: inherit; padding: .4rem .6rem; width: min(30rem, 100%); box-sizing: border-box; }
table { border-collapse: collapse; margin-top: 1rem; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .4rem .6rem; text-align: left; }
td { vertical-align: top; }
code { user-select: all; }
button { font: inherit; font-size: .8rem; }
small { opacity: .75; }
[hidden] { display: none; }
"""

# Without the script everything is there but search, ages and the buttons.
_SCRIPT: Final = """
const rows = [...document.querySelectorAll("tbody tr")];
const search = document.querySelector("input");
const found = document.querySelector("output");
function show() {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = row.dataset.text;
    row.hidden = !words.every(word => text.includes(word));
    count += !row.hidden;
  }
  found.textContent = `${count} of ${rows.length}`;
}
search.hidden = false;
search.addEventListener("input", show);
show();
for (const time of document.querySelectorAll("time")) {
  const hours = (Date.now() - Date.parse(time.dateTime)) / 36e5;
  time.title = time.textContent;
  time.textContent = hours < 48 ? `${Math.max(0, Math.floor(hours))} h` :
    `${Math.floor(hours / 24)} days`;
}
for (const code of document.querySelectorAll("td code")) {
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
    """Render `index.html`. Whatever comes from a registry is escaped."""
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
itself; nobody has to download one from here. For programs: <a href="{DATA}">{DATA}</a>.</p>
<p><input type="search" placeholder="search" aria-label="search" hidden> <output></output></p>
<table>
<thead><tr><th>repository</th><th>clone</th><th>bundle</th><th>size</th><th>age</th></tr></thead>
<tbody>
{body}
</tbody>
</table>
<script>{_SCRIPT}</script>
</body>
</html>
"""
    return text.encode()


def _row(row: Row, clone_url: str) -> str:
    path, description = html.escape(row.path), html.escape(row.description)
    entries = list(row.bundles.items())
    kinds = "<br>".join(
        f'<a href="{html.escape(entry.url)}">{html.escape(kind)}</a>' for kind, entry in entries
    )
    sizes = "<br>".join(size(entry.size) for _, entry in entries)
    ages = "<br>".join(
        f'<time datetime="{entry.made.strftime(_TIME)}">{entry.made:%Y-%m-%d}</time>'
        for _, entry in entries
    )
    command = shlex.join(["hg", "clone", f"{clone_url}/{row.path}"]) if clone_url else ""
    clone = f"<code>{html.escape(command)}</code>" if command else ""
    searched = html.escape(f"{row.path} {row.description}".lower())
    return (
        f'<tr data-text="{searched}"><td>{path}<br><small>{description}</small></td>'
        f"<td>{clone}</td><td>{kinds}</td><td>{sizes}</td><td>{ages}</td></tr>"
    )

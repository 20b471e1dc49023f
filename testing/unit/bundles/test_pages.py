from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from datetime import UTC, datetime

from hgfleet.bundles.decide.manifest import Entry
from hgfleet.bundles.stores import pages
from hgfleet.bundles.stores.pages import Row

ENTRY = Entry(
    'https://s3.example/bundles/a/b.hg?x=<&"',
    "zstd-v2",
    "1" * 64,
    1_500_000,
    100,
    datetime(2026, 11, 20, tzinfo=UTC),
)
HOSTILE = Row("team/project", '"><img src=x onerror=alert(1)> & <b>', {"zstd": ENTRY})


def index(*rows: Row, clone_url: str = "https://hg.example", title: str = "Bundles") -> str:
    return pages.index(rows, clone_url, title).decode()


def test_nothing_of_a_registry_becomes_markup() -> None:
    text = index(HOSTILE, title="<i>title</i>")
    body = text.partition("<body>")[2].partition("<script>")[0]
    assert "<img" not in body
    assert "<b>" not in body
    assert "<i>" not in text
    assert 'x=&lt;&amp;&quot;"' in body
    # Attributes cannot be left either: every quote of the description is escaped.
    assert re.search(r'data-text="[^"<>]*">\n<tr><td', body)


def test_the_policy_allows_just_the_style_and_script_of_the_page() -> None:
    text = index(HOSTILE)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(parts) == 1
        digest = base64.b64encode(hashlib.sha256(parts[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(
        r"\s(on\w+|style)=", text.partition("<script>")[0].replace("onerror=alert", "")
    )


def test_the_page_loads_nothing_from_elsewhere() -> None:
    text = index(HOSTILE)
    assert not re.search(r"<(link|img|iframe|object|embed)|src=[\"']|@import|url\(", text)


def test_people_find_commands_sizes_and_dates() -> None:
    text = index(HOSTILE)
    assert "<code>hg clone https://hg.example/team/project</code>" in text
    assert "1.5 MB" in text
    assert '<time datetime="2026-11-20T00:00:00Z">2026-11-20</time>' in text
    assert "<code>hg clone https" not in index(HOSTILE, clone_url="")


def test_a_search_finds_path_and_description_in_any_case() -> None:
    text = index(Row("team/project", "A Tool", {"zstd": ENTRY}))
    assert 'data-text="team/project a tool"' in text


def test_programs_get_the_same_as_json() -> None:
    document = json.loads(pages.data([HOSTILE], "https://hg.example"))
    assert document["format"] == 1
    repository = document["repositories"]["team/project"]
    assert repository["clone"] == "https://hg.example/team/project"
    assert repository["bundles"][0]["sha256"] == "1" * 64
    assert repository["bundles"][0]["made"] == "2026-11-20T00:00:00Z"


def test_unchanged_bundles_give_unchanged_pages() -> None:
    assert index(HOSTILE) == index(HOSTILE)
    assert pages.data([HOSTILE], "") == pages.data([HOSTILE], "")

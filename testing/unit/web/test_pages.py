from __future__ import annotations

import base64
import hashlib
import json
import re

from hgfleet.registry.model.registry import Namespace, Registry, Repository
from hgfleet.web.http import pages
from hgfleet.web.index.catalogue import Catalogue

EVIL = '<script>alert("&")</script>'
REGISTRY = Registry(
    {
        entry.path: entry
        for entry in (
            Repository("alpha", EVIL, "public", (), True, ()),
            Repository("sandbox/hidden", "nobody's business", ("staff",), (), True, ()),
            Repository("sandbox/playground", "An empty repository", "public", (), True, ()),
            Repository("zeta", "Last", "public", (), True, ()),
        )
    },
    {"sandbox": Namespace("sandbox", EVIL)},
)
BASE = "https://hg.example.org"
SSH = "ssh://hg@hg.example.org"


def rows(folder: str, changed: dict[str, int]) -> list[pages.Row]:
    return [
        pages.Row(
            entry.repository.path,
            entry.repository.description,
            entry.namespace,
            changed.get(entry.repository.path),
        )
        for entry in Catalogue(REGISTRY).listed(folder)
    ]


def html(folder: str = "") -> str:
    listed = rows(folder, {"alpha": 1_700_000_000})
    return pages.index_html(EVIL, BASE, SSH, folder, REGISTRY, listed).decode()


def test_the_index_lists_public_repositories_by_namespace() -> None:
    page = html()
    links = re.findall(r'<li><a href="([^"]*)">', page)
    assert links == ["/alpha", "/zeta", "/sandbox/playground"]
    assert '<h2><a href="/sandbox/">sandbox/</a></h2>' in page
    assert "hidden" not in page
    assert "2023-11-14 22:13 UTC" in page
    assert "hg clone https://hg.example.org/alpha" in page


def test_a_namespace_has_an_index_of_its_own() -> None:
    page = html("sandbox")
    assert re.findall(r'<li><a href="([^"]*)">', page) == ["/sandbox/playground"]
    assert "hg push ssh://hg@hg.example.org/sandbox/playground" in page


def test_no_value_gets_into_a_page_unescaped() -> None:
    for page in (html(), html("sandbox"), pages.error_html(EVIL, EVIL, EVIL).decode()):
        assert "<script" not in page
        assert "&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;" in page


def test_the_policy_allows_the_style_sheet_of_the_page_and_nothing_else() -> None:
    style = re.search(r"<style>(.*?)</style>", html(), re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in pages.CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in pages.CONTENT_SECURITY_POLICY
    assert " style=" not in html()


def test_an_empty_service_says_so() -> None:
    page = pages.index_html("Title", BASE, "", "", Registry({}), []).decode()
    assert "There is no public repository yet." in page


def test_json_says_the_same_to_programs() -> None:
    listed = rows("", {"alpha": 1_700_000_000})
    document = json.loads(pages.index_json(BASE, SSH, REGISTRY, listed))
    assert [entry["path"] for entry in document["repositories"]] == [
        "alpha",
        "zeta",
        "sandbox/playground",
    ]
    assert document["repositories"][0] == {
        "path": "alpha",
        "description": EVIL,
        "namespace": None,
        "url": "https://hg.example.org/alpha",
        "push_url": "ssh://hg@hg.example.org/alpha",
        "changed": "2023-11-14T22:13:20Z",
    }
    assert document["namespaces"] == [{"path": "sandbox", "description": EVIL}]


def test_pages_of_an_index_link_to_their_neighbours() -> None:
    listed = rows("", {})

    def nav(paging: pages.Paging) -> str:
        page = pages.index_html("T", BASE, SSH, "", REGISTRY, listed, paging=paging).decode()
        assert "450 repositories." in page
        return page.partition("<nav>")[2].partition("</nav>")[0]

    assert nav(pages.Paging(1, 1, 450)) == ""
    first, middle, last = (nav(pages.Paging(number, 3, 450)) for number in (1, 2, 3))
    assert re.findall(r'href="([^"]*)"', first) == ["?page=2"]
    assert re.findall(r'href="([^"]*)"', middle) == ["?page=1", "?page=3"]
    assert re.findall(r'href="([^"]*)"', last) == ["?page=2"]
    document = json.loads(pages.index_json(BASE, SSH, REGISTRY, listed, f"{BASE}/x?page=2"))
    assert document["next"] == f"{BASE}/x?page=2"

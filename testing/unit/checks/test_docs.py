"""The linter of links and of the claims of docs/audit.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import docs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Who may log in where", "who-may-log-in-where"),
        ("1. The inventory", "1-the-inventory"),
        ("`hg` and [links](x.md), both", "hg-and-links-both"),
        ("What is logged, and for how long", "what-is-logged-and-for-how-long"),
    ],
)
def test_anchors_are_those_of_forges(heading: str, anchor: str) -> None:
    assert docs.anchor(heading) == anchor


def test_links_that_lead_nowhere_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading\n\n```\n# no heading\n```\n\n# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[here](#title) [a](other.md) [b](other.md#a-heading) [b](other.md#a-heading-1)\n"
        "# Title\n[out](https://example.org/x#y) `[code](missing.md)`\n"
        "[gone](missing.md)\n[no](other.md#no-heading)\n[self](#nothing)\n"
    )
    assert [number for number, _ in docs.link_problems(page)] == [4, 5, 6]


LINK = "[g of small hg1](../testing/goldens/g.txt)"
PAGE = "# Hosts: small: hg1 hg2\non small: hg1\n  x 1\non small: hg2\n  x 2\n"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (f"| it is so | {LINK}: `x 1` | `testing/test_x.py::test_x` |", ""),
        ("| it is so | | `testing/test_x.py::test_x` |", ""),
        (f"| it is so | {LINK}: `x 2` | `testing/test_x.py::test_x` |", "no longer"),
        (f"| it is so | {LINK} | `testing/test_x.py::test_x` |", "quoted"),
        (f"| it is so | {LINK}: `x 1` | it is |", "without a test"),
        ("| so | [g](../testing/goldens/g.txt): `x 1` | `testing/test_x.py::test_x` |", "HOST"),
        ("| it is so | | `testing/test_x.py::test_y` |", "no such test"),
        ("| it is so | | `testing/test_y.py::test_x` |", "no such test"),
        ("| it is so | `testing/test_x.py::test_x` |", "2 columns"),
    ],
)
def test_a_claim_has_its_golden_and_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, problem: str
) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    for name, text in (("goldens/g.txt", PAGE), ("test_x.py", "def test_x() -> None: ...\n")):
        path = tmp_path / "testing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    audit = tmp_path / "docs/audit.md"
    audit.parent.mkdir()
    audit.write_text(
        "| claim | golden | test |\n| --- | --- | --- |\n"
        f"{row}\n| another | | `testing/test_x.py::test_x` |\n"
    )
    texts = [text for _, text in docs.audit_problems(audit)]
    assert len(texts) == bool(problem), texts
    assert all(problem in text for text in texts)


def test_a_page_without_claims_is_a_problem(tmp_path: Path) -> None:
    audit = tmp_path / "audit.md"
    audit.write_text("# Audit\n")
    assert [text for _, text in docs.audit_problems(audit)] == ["no claim was found"]

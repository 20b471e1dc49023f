"""Which revsets of a web client are evaluated."""

from __future__ import annotations

import pytest
from mercurial import initialization, revset, revsetlang

from hgfleet.web.engine import search

initialization.init()


def problem(query: str) -> str:
    tree = revsetlang.parse(b"reverse(%s)" % query.encode())
    return search.problem(revsetlang.foldconcat(tree))


@pytest.mark.parametrize(
    "query",
    [
        "tip",
        "0:tip",
        "1.0::2.0",
        "::tip",
        "all()",
        "head() and not closed()",
        "desc('a word') or keyword(other)",
        "user(alice) and date('2026-01-01 to 2026-02-01')",
        "branch(stable) - merge()",
        "limit(heads(all()), 3)",
        "first(p1(tip) + p2(tip))",
        "children(1234567890ab)^2",
        "tag() + bookmark('@')",
        "'r' ## 'elease'",
    ],
)
def test_a_search_of_plain_words_sets_and_ranges_is_evaluated(query: str) -> None:
    assert problem(query) == ""


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("file('listfile:/etc/passwd')", "file() is not part"),
        ("file('relre:(a+)+$')", "file() is not part"),
        ("file('set:grep(\"(a+)+$\")')", "file() is not part"),
        ("_matchfiles('p:re:(.*)*0x')", "_matchfiles() is not part"),
        ("grep('(a+)+$')", "grep() is not part"),
        ("contains('re:x')", "contains() is not part"),
        ("adds('listfile:/dev/zero')", "adds() is not part"),
        ("follow('re:.*')", "follow() is not part"),
        ("matching(all(), 'diff')", "matching() is not part"),
        ("extra('re:x', 're:y')", "extra() is not part"),
        ("subrepo('re:x')", "subrepo() is not part"),
        ("desc('r' ## 'e:(a+)+$')", "desc() takes plain text"),
        ("all() and user('re:x')", "user() takes plain text"),
        ("branch('re:(a+)+$')", "branch() takes plain text"),
        ("tag('re:(a+)+$')", "tag() takes plain text"),
        ("bookmark('re:(a+)+$')", "bookmark() takes plain text"),
        ("desc(file('listfile:/etc/passwd'))", "desc() takes plain text"),
        ("heads(grep(x))", "grep() is not part"),
        ("limit(all(), tip)", "limit() takes a number"),
        ("limit(all(), 1, 2)", "limit() has 3 arguments"),
        ("desc()", "desc() has 0 arguments"),
        ("ancestors(tip)", "ancestors() is not part"),
        ("tip % 0", "'only' is not part"),
        ("tip#generations", "is not part"),
        ("sort(all(), depth=3)", "sort() is not part"),
        (" or ".join(["desc(a)"] * 40), "expected at most 64"),
    ],
)
def test_every_other_query_is_not(query: str, reason: str) -> None:
    assert reason in problem(query)


def test_every_function_of_the_list_exists_in_core_and_is_safe_there() -> None:
    assert set(search.FUNCTIONS) <= set(revset.safesymbols)
    assert set(search.FUNCTIONS) == set(search._Revsets.safesymbols)

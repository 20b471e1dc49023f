"""Patterns of branches and paths fit exactly the names that the table says."""

from __future__ import annotations

import random

import pytest

from hgfleet.policies import globs


@pytest.mark.parametrize(
    ("glob", "fitting", "other"),
    [
        ("stable", ["stable"], ["stable2", "unstable", "Stable", ""]),
        ("rel-*", ["rel-", "rel-1", "rel-1/2"], ["rel", "xrel-1"]),
        ("v?", ["v1", "vx", "v/"], ["v", "v12"]),
        ("*", ["", "a", "a/b", "a\nb"], []),
        ("[ab]c", ["ac", "bc"], ["cc", "abc"]),
        ("a.b", ["a.b"], ["axb"]),
        ("(a|b)+", ["(a|b)+"], ["a", "ab"]),
    ],
)
def test_patterns_of_branches(glob: str, fitting: list[str], other: list[str]) -> None:
    pattern = globs.branches([glob])
    assert [text for text in fitting if not pattern.fits(text)] == []
    assert [text for text in other if pattern.fits(text)] == []


@pytest.mark.parametrize(
    ("glob", "fitting", "other"),
    [
        ("*.exe", ["a.exe", "x/y.exe", ".exe", "d.exe/readme"], ["a.exe2", "exe", "a.EXE"]),
        (
            "node_modules",
            ["node_modules/a", "x/node_modules/y/z"],
            ["node_modules2/a", "anode_modules"],
        ),
        ("docs/*.pdf", ["docs/a.pdf"], ["a.pdf", "x/docs/a.pdf", "docs/x/a.pdf"]),
        ("src/**", ["src/a", "src/a/b"], ["srca", "x/src/a"]),
        ("**/keys", ["keys", "a/keys", "a/b/keys/c"], ["a/keysx"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("secrets/prod", ["secrets/prod", "secrets/prod/x"], ["secrets/production", "secrets"]),
        ("a/[!b]", ["a/c"], ["a/b", "a//"]),
        ("x[", ["x["], ["x"]),
        ("[]]", ["]"], ["[", "["]),
        ("[^a]", ["^", "a"], ["b"]),
        ("[z-a]", ["z", "-", "a"], ["b"]),
        ("[a-c-]", ["b", "-"], ["d"]),
        ("a\\b", ["a\\b"], ["ab"]),
    ],
)
def test_patterns_of_paths(glob: str, fitting: list[str], other: list[str]) -> None:
    assert globs.glob_problem(glob) is None
    pattern = globs.paths([glob])
    assert [text for text in fitting if not pattern.fits(text)] == []
    assert [text for text in other if pattern.fits(text)] == []


def test_one_of_several_patterns_is_enough_and_none_fits_everything() -> None:
    assert globs.paths(["a", "b"]).fits("b")
    assert not globs.paths(["a", "b"]).fits("ab")
    assert globs.paths([]).fits("anything")
    assert globs.branches(()).fits("")


def test_any_text_is_a_pattern_that_compiles() -> None:
    randomness = random.Random(11)
    for _ in range(2000):
        glob = "".join(randomness.choices("ab*?[]!^-\\.(){}|+$/&~", k=randomness.randint(1, 12)))
        globs.paths([glob]).fits("a/b")
        globs.branches([glob]).fits("a/b")


@pytest.mark.parametrize("glob", ["", " ", "/a", "a/", "a//b", "a\nb", "x" * 201])
def test_bad_patterns(glob: str) -> None:
    assert globs.glob_problem(glob)

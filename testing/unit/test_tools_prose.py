"""The check of prose finds pronouns and banned words in docstrings, comments and documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.tools import prose

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = '''"""A bundle is spoilt."""

WORD = "whoever"  # nobody reads what follows


def function() -> str:
    """Return `whoever`, and what else there is."""
    return "somebody"
'''


def test_docstrings_and_comments_of_python_count_and_other_strings_do_not() -> None:
    counted = prose.count("x.py", prose.passages_of_python(PYTHON))
    assert {(one.word, one.line) for one in counted.banned} == {("spoilt", 1), ("nobody", 3)}
    assert [one.line for one in counted.what] == [7, 3]


def test_fenced_code_of_a_document_does_not_count() -> None:
    text = "Whoever pulls\n```\nwhoever\n```\nreads `what`.\n"
    counted = prose.count("x.md", prose.passages_of_markdown(text))
    assert [(one.word, one.line) for one in counted.banned] == [("whoever", 1)]
    assert not counted.what


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("# mend it", ["mend"]),
        ("key: value  # for somebody", ["somebody"]),
        ("url: https://host/#somebody", []),
        ("#!/bin/sh nobody", []),
        ("{# nobody #}", ["nobody"]),
    ],
)
def test_comments_of_yaml_shell_and_templates_count(line: str, words: list[str]) -> None:
    counted = prose.count("x.yml", prose.passages_of_comments(line))
    assert [one.word for one in counted.banned] == words


def test_a_banned_word_is_told_with_its_place_and_a_better_one() -> None:
    counted = prose.count("a/b.py", [prose.Passage(4, "one\ntwo giants")])
    assert prose.problems([counted]) == ["a/b.py:5: 'giants'; for example: large repositories"]


@pytest.mark.parametrize(("what", "is_problem"), [(3, False), (4, True)])
def test_the_rate_of_what_has_a_bar(what: int, is_problem: bool) -> None:
    counted = prose.count("x.md", [prose.Passage(1, "what " * what + "word " * (1000 - what))])
    found = prose.problems([counted])
    assert bool(found) == is_problem
    assert all("expected at most 3" in line and "x.md (4)" in line for line in found)


def test_a_run_without_any_prose_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert prose.main([str(tmp_path / "x.json")]) == 1
    assert "nothing was checked" in capsys.readouterr().err


def test_list_shows_each_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.md"
    file.write_text("word " * 999 + "\nwhat\n")
    assert prose.main(["--list", str(file)]) == 0
    assert f"{file}:2: 'what'" in capsys.readouterr().out

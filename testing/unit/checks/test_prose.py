"""The check of prose finds pronouns and banned words in docstrings, comments and documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import passages, prose

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = '''"""A bundle is spoilt."""

WORD = "whoever"  # nobody reads what follows


def function() -> str:
    """Return `whoever`, and what else there is."""
    return "somebody"
'''

MESSAGES = """
def refuse(path: str) -> None:
    raise ValueError(
        f"{path} is lacking here: "
        "nobody may read it"
    )
KEY = "nobody"
"""


def banned_words(counted: prose.Counted) -> list[tuple[str, int]]:
    return sorted((finding.word, finding.line) for finding in counted.banned)


def test_docstrings_and_comments_of_python_count_and_short_strings_do_not() -> None:
    counted = prose.count("x.py", passages.passages_of_python(PYTHON))
    assert banned_words(counted) == [("nobody", 3), ("spoilt", 1)]
    assert [finding.line for finding in counted.what] == [7, 3]


def test_a_message_of_several_parts_counts_as_one_sentence() -> None:
    counted = prose.count("x.py", passages.passages_of_python(MESSAGES))
    assert banned_words(counted) == [("lacking", 4), ("nobody", 4)]
    silent = prose.count("x.py", passages.passages_of_python(MESSAGES, messages=False))
    assert not silent.words


def test_a_comment_of_several_lines_is_one_passage() -> None:
    source = "x = 1  # the size is that\ny = 2  # of a bundle\n# the size is that\n# of a bundle\n"
    counted = prose.count("x.py", passages.passages_of_python(source))
    assert [(finding.word, finding.line) for finding in counted.habits] == [("that of", 3)]


def test_only_the_story_of_a_t_file_counts() -> None:
    counted = prose.count(
        "x.t", passages.passages_of_story("Whoever pulls:\n\n  $ hg pull nobody\n")
    )
    assert banned_words(counted) == [("whoever", 1)]


def test_fenced_code_of_a_document_does_not_count() -> None:
    text = "Whoever pulls\n```\nwhoever\n```\nreads `what`.\n"
    counted = prose.count("x.md", passages.passages_of_markdown(text))
    assert banned_words(counted) == [("whoever", 1)]
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
    counted = prose.count("x.yml", passages.passages_of_comments(line))
    assert [finding.word for finding in counted.banned] == words


def test_a_banned_word_is_told_with_its_place_and_a_better_one() -> None:
    counted = prose.count("a/b.py", [passages.Passage(4, "one\ntwo giants")])
    assert prose.problems([counted]) == ["a/b.py:5: 'giants'; for example: large repositories"]


@pytest.mark.parametrize(("what", "is_problem"), [(3, False), (4, True)])
def test_the_rate_of_what_has_a_bar(what: int, is_problem: bool) -> None:
    counted = prose.count("x.md", [passages.Passage(1, "what " * what + "word " * (1000 - what))])
    lines = prose.problems([counted])
    assert bool(lines) == is_problem
    assert all("expected at most 3" in line and "x.md (4)" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "habits"),
    [
        ("The first one waits, those\nof hg1 do not.", ["one", "that of"]),
        ("`one` is done, ones are not; someone is another word", ["one"]),
        ("only hg1 alone may push; a script that stands alone; leave it", ["alone"]),
        ("so that of two pushes the first wins", []),
        ("written anew beside it, Meanwhile", ["beside", "anew", "meanwhile"]),
    ],
)
def test_the_habits_are_found(text: str, habits: list[str]) -> None:
    counted = prose.count("x.md", [passages.Passage(1, text)])
    assert [finding.habit for finding in counted.habits] == habits


def file_with(path: str, *, ones: int, words: int) -> prose.Counted:
    return prose.count(path, [passages.Passage(1, "one " * ones + "word " * (words - ones))])


@pytest.mark.parametrize(
    ("ones", "words", "is_problem"),
    [(4, 1000, False), (5, 1000, True), (8, 2000, False), (9, 2000, True), (1, 10, False)],
)
def test_a_folder_has_a_bar_and_a_single_instance_is_no_habit(
    ones: int, words: int, is_problem: bool
) -> None:
    files = [
        file_with("hgfleet/web/a.py", ones=ones, words=words // 2),
        file_with("hgfleet/web/b.py", ones=0, words=words // 2),
    ]
    lines = prose.folder_problems(files)
    assert bool(lines) == is_problem
    assert all(line.startswith("hgfleet/web: 'one'") for line in lines)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("README.md", "."),
        ("hgext/access.py", "hgext"),
        ("hgfleet/cli.py", "hgfleet"),
        ("hgfleet/web/http/server.py", "hgfleet/web"),
        ("ansible/roles/web/tasks/main.yml", "ansible/roles"),
    ],
)
def test_the_folder_of_a_file_is_the_package_or_the_part(path: str, folder: str) -> None:
    assert prose.folder_of(path) == folder


def test_the_worst_folders_are_printed_with_their_places() -> None:
    files = [file_with("hgfleet/web/a.py", ones=6, words=100)]
    line, *places = prose.worst(files, "")
    assert line == "hgfleet/web: one 60.0"
    assert places == ["    hgfleet/web/a.py:1: 'one'; for example: name the thing again"] * 6
    assert not list(prose.worst(files, "hgfleet/core"))


def test_a_run_without_any_prose_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert prose.main([str(tmp_path / "x.json")]) == 1
    assert "nothing was checked" in capsys.readouterr().err


def test_list_shows_each_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.md"
    file.write_text("word " * 999 + "\nwhat\n")
    assert prose.main(["--list", str(file)]) == 0
    assert f"{file}:2: 'what'" in capsys.readouterr().out

"""The repositories and files that web hosts are compared by."""

from __future__ import annotations

import pytest

from testing.support import loading

truth = loading.module("ansible/on_host/truth.py")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a file", "docs/read-me_1.txt", "LICENSE"], "docs/read-me_1.txt"),
        ([".hgignore"], ".hgignore"),
        (["ä", "100%", "what?", "a#b"], ""),
        ([], ""),
    ],
)
def test_a_file_is_compared_whose_name_needs_no_quoting(names: list[str], expected: str) -> None:
    assert truth.plain(names) == expected


def test_small_repositories_are_compared_and_those_with_a_push_just_now_are_the_last() -> None:
    now = 1_000_000.0
    changelogs = {
        "empty": (0, 0.0),
        "large": (9000, now - 3600),
        "pushed-to": (64, now - 5),
        "small": (128, now - 3600),
    }
    assert truth.choose(changelogs, now, 2) == ["small", "large"]
    assert truth.choose(changelogs, now, 3) == ["small", "large", "pushed-to"]

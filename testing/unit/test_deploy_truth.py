"""The file of a repository that web hosts are compared by."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ansible"))

from deploy import truth  # noqa: E402


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

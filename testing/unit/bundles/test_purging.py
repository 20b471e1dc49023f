"""URLs of deleted objects, for a command that has a CDN forget them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.stores import purging
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

URLS = [f"https://cdn.example/b/{number}.hg" for number in range(3)]


def command(text: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; {text}"]


def test_a_command_gets_each_url_once(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    keep = command(f"open({str(taken)!r}, 'a').write(sys.stdin.read())")
    assert purging.purge(tmp_path, keep) == 0
    purging.note(tmp_path, URLS[:2])
    purging.note(tmp_path, URLS[1:])
    assert purging.waiting(tmp_path) == URLS
    assert purging.purge(tmp_path, keep) == 3
    assert taken.read_text().splitlines() == URLS
    assert purging.waiting(tmp_path) == []
    assert purging.purge(tmp_path, keep) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (command("print('no such zone'); sys.exit(3)"), "ended with 3, expected 0.*no such zone"),
        (["/nonexistent/purge"], "No such file"),
    ],
)
def test_urls_of_a_command_that_fails_wait_for_the_next_run(
    tmp_path: Path, words: list[str], said: str
) -> None:
    purging.note(tmp_path, URLS)
    with pytest.raises(UnavailableError, match=said):
        purging.purge(tmp_path, words)
    assert purging.waiting(tmp_path) == URLS


def test_urls_that_are_noted_while_the_command_works_are_not_lost(tmp_path: Path) -> None:
    purging.note(tmp_path, URLS[:1])
    more = tmp_path / purging.NAME
    late = command(f"sys.stdin.read(); open({str(more)!r}, 'a').write({URLS[2]!r} + '\\n')")
    assert purging.purge(tmp_path, late) == 1
    assert purging.waiting(tmp_path) == URLS[2:]

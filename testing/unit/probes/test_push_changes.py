"""Changes of the push probe: when a changeset is due, where the bookmark moves, messages of hg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mercurial import ui
from mercurial.repo import factory

from hgfleet.probes import push_changes
from hgfleet.probes.push_changes import CHANGESET_SECONDS, Chain, is_sent, target

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_598_185.0
HOST = "monitor1.example"
OLD, NEW, OTHER = (bytes([byte]) * 20 for byte in (1, 2, 3))


@pytest.mark.parametrize(
    ("chain", "wanted"),
    [
        (Chain(), None),
        # With a single changeset a bookmark cannot move.
        (Chain((NEW,), NOW, NEW), None),
        (Chain((NEW, OLD), NOW - 60, NEW), OLD),
        (Chain((NEW, OLD), NOW - 60, OLD), NEW),
        (Chain((NEW, OLD), NOW - CHANGESET_SECONDS + 1, NEW), OLD),
        (Chain((NEW, OLD), NOW - CHANGESET_SECONDS, NEW), None),
        # The clock was set back.
        (Chain((NEW, OLD), NOW + 60, NEW), None),
        # The server's bookmark is unknown, or elsewhere.
        (Chain((NEW, OLD), NOW - 60, None), None),
        (Chain((NEW, OLD), NOW - 60, OTHER), None),
    ],
)
def test_a_changeset_is_due_each_hour_and_else_the_bookmark_moves(
    chain: Chain, wanted: bytes | None
) -> None:
    assert target(chain, NOW) == wanted


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ("no changes found\nupdating bookmark minute/monitor1.example\n", True),
        ("adding changesets\nexporting bookmark minute/monitor1.example\n", True),
        ("no changes found\n", False),
        ("updating bookmark minute/monitor1.example failed\n", False),
        ("remote: updating bookmark minute/monitor1.example\n", False),
        ("updating bookmark minute/monitor2.example\n", False),
        ("", False),
    ],
)
def test_the_words_of_hg_say_whether_the_bookmark_moved(messages: str, wanted: bool) -> None:
    assert is_sent(messages, HOST) is wanted


def repository(place: Path) -> Any:
    return factory.repository(ui.ui(), str(place).encode())


def test_runs_of_three_hours_make_four_changesets_without_files(tmp_path: Path) -> None:
    """A changeset in each hour, and a first changeset before; each run moves the bookmark."""
    place = tmp_path / "pushed"
    push_changes.create(place)
    before = b""
    for minute in range(0, 181, 4):
        push_changes.prepare(place, HOST, NOW + minute * 60)
        at = repository(place)._bookmarks[b"minute/monitor1.example"]
        assert at != before, minute
        before = at
    repo = repository(place)
    assert len(repo) == 4
    assert list(repo.heads()) == [repo[3].node()]
    assert {changeset.branch() for changeset in map(repo.__getitem__, repo)} == {
        b"probe/monitor1.example"
    }
    assert not any(repo[number].files() or repo[number].manifest() for number in repo)
    assert sorted(path.name for path in place.iterdir()) == [".hg"]

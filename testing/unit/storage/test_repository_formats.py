from __future__ import annotations

import pytest

from hgfleet.storage import repository_formats
from hgfleet.storage.repository_formats import Action

TODAY = frozenset(
    {
        *("dotencode", "fncache", "generaldelta", "revlog-compression-zstd"),
        *("revlogv1", "share-safe", "sparserevlog", "store"),
    }
)
OLD = frozenset({"dotencode", "fncache", "revlogv1", "store"})


def test_what_new_repositories_have_is_added_and_explained() -> None:
    decision = repository_formats.decide(OLD, TODAY)
    assert decision.action is Action.UPGRADE
    assert decision.missing == (
        *("generaldelta", "revlog-compression-zstd", "share-safe", "sparserevlog"),
    )
    assert "no revlog-compression-zstd: compressed with zstd instead of zlib" in decision.reasons


@pytest.mark.parametrize("more", [set(), {"dirstate-v2"}])
def test_a_repository_like_new_ones_is_left_alone(more: set[str]) -> None:
    assert repository_formats.decide(TODAY | more, TODAY).action is Action.CURRENT


@pytest.mark.parametrize(
    ("current", "words"),
    [
        (OLD | {"treemanifest"}, "it has treemanifest, which new repositories do not have"),
        (OLD | {"persistent-nodemap"}, "it has persistent-nodemap"),
        (OLD | {"shared"}, "belongs to another repository"),
        (OLD - {"store"}, "it has no store"),
        (frozenset[str](), "it has no revlogv1 and no store"),
    ],
)
def test_what_is_not_known_is_refused_with_a_way_out(current: frozenset[str], words: str) -> None:
    decision = repository_formats.decide(current, TODAY)
    assert decision.action is Action.REFUSE
    assert words in decision.reasons[0]


def test_a_goal_that_this_program_cannot_reach_is_refused() -> None:
    decision = repository_formats.decide(OLD, TODAY | {"persistent-nodemap"})
    assert decision.action is Action.REFUSE
    assert "does not know how to add that" in decision.reasons[0]
    assert repository_formats.problem(TODAY) is None
    assert "share-safe" in (repository_formats.problem(TODAY - {"share-safe"}) or "")

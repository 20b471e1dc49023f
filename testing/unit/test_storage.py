"""What is decided about storage formats: which repositories, in which order, and with what room."""

from __future__ import annotations

import pytest

from hgfleet.storage import formats, plan
from hgfleet.storage.formats import Action, Decision
from hgfleet.storage.plan import Candidate, Disk, Ledger
from hgfleet.storage.upgrade import Outcome, table

TODAY = frozenset(
    {
        *("dotencode", "fncache", "generaldelta", "revlog-compression-zstd"),
        *("revlogv1", "share-safe", "sparserevlog", "store"),
    }
)
OLD = frozenset({"dotencode", "fncache", "revlogv1", "store"})
DUE = Decision(Action.UPGRADE)
GB = 1000**3


def test_what_new_repositories_have_is_added_and_explained() -> None:
    decision = formats.decide(OLD, TODAY)
    assert decision.action is Action.UPGRADE
    assert decision.missing == (
        *("generaldelta", "revlog-compression-zstd", "share-safe", "sparserevlog"),
    )
    assert "no revlog-compression-zstd: compressed with zstd instead of zlib" in decision.reasons


@pytest.mark.parametrize("more", [set(), {"dirstate-v2"}])
def test_a_repository_like_new_ones_is_left_alone(more: set[str]) -> None:
    assert formats.decide(TODAY | more, TODAY).action is Action.CURRENT


@pytest.mark.parametrize(
    ("current", "words"),
    [
        (OLD | {"treemanifest"}, "it has treemanifest, which new repositories have not"),
        (OLD | {"persistent-nodemap"}, "it has persistent-nodemap"),
        (OLD | {"shared"}, "belongs to another repository"),
        (OLD - {"store"}, "it has no store"),
        (frozenset[str](), "it has no revlogv1 and no store"),
    ],
)
def test_what_is_not_known_is_refused_with_a_way_out(current: frozenset[str], words: str) -> None:
    decision = formats.decide(current, TODAY)
    assert decision.action is Action.REFUSE
    assert words in decision.reasons[0]


def test_a_goal_that_this_program_cannot_reach_is_refused() -> None:
    decision = formats.decide(OLD, TODAY | {"persistent-nodemap"})
    assert decision.action is Action.REFUSE
    assert "does not know how to add that" in decision.reasons[0]
    assert formats.problem(TODAY) is None
    assert "share-safe" in (formats.problem(TODAY - {"share-safe"}) or "")


def test_the_largest_begins_first() -> None:
    sizes = {"b": 5, "a": 5, "large": 9, "small": 1}
    ordered = plan.order(Candidate(path, DUE, size, 1) for path, size in sizes.items())
    assert [one.path for one in ordered] == ["large", "a", "b", "small"]


def test_a_full_disk_is_said_with_what_is_missing() -> None:
    one = Candidate("team/x", DUE, 4 * GB, 100)
    assert Ledger().shortage(one, Disk(100 * GB, 7 * GB + 1)) is None
    said = Ledger().shortage(one, Disk(100 * GB, 6 * GB))
    assert said == (
        "the new store needs up to 5,000 MB and 6,000 MB are free (2,000 MB are kept free): "
        "1,000 MB are missing"
    )


def test_what_others_will_take_counts() -> None:
    ledger, disk = Ledger(), Disk(100 * GB, 10 * GB)
    first, second = (Candidate(name, DUE, 4 * GB, 100) for name in ("first", "second"))
    ledger.take(first)
    assert "other upgrades take 5,000 MB" in (ledger.shortage(second, disk) or "")
    ledger.release("first")
    assert ledger.shortage(second, disk) is None


def test_inodes_count_where_the_file_system_has_them() -> None:
    one = Candidate("team/x", DUE, 1, 5000)
    assert Ledger().shortage(one, Disk(100 * GB, 50 * GB, 10_000, 9_000)) is None
    assert "5,000 files, and 5,500 inodes" in (
        Ledger().shortage(one, Disk(100 * GB, 50 * GB, 10_000, 5_500)) or ""
    )


def test_the_table_sets_before_beside_after() -> None:
    figures = {
        "changed": True,
        "size_before": 2_000_000,
        "size_after": 1_000_000,
        "before": {"bundle": 2.0, "read": 1.0},
        "after": {"bundle": 1.0, "read": 1.1},
        "seconds": 12.34,
        "locked_seconds": 0.05,
    }
    head, row = table([Outcome("team/x", OLD, figures), Outcome("current")], TODAY)
    assert head.split()[:3] == ["REPOSITORY", "FORMAT", "SIZE"]
    assert "zlib -> zstd generaldelta sparse" in row
    assert "2.0 MB -> 1.0 MB  -50%  2.00 s -> 1.00 s  -50%" in row
    assert "1.00 s -> 1.10 s  +10%" in row
    assert row.endswith("12.3 s  0.05 s")
    assert table([Outcome("current")], TODAY) == []

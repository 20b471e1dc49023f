from __future__ import annotations

from hgfleet.storage import plan
from hgfleet.storage.plan import Candidate, Disk, Ledger
from hgfleet.storage.repository_formats import Action, Decision

DUE = Decision(Action.UPGRADE)
GB = 1000**3


def test_the_largest_begins_first() -> None:
    sizes = {"b": 5, "a": 5, "large": 9, "small": 1}
    ordered = plan.order(Candidate(path, DUE, size, 1) for path, size in sizes.items())
    assert [candidate.path for candidate in ordered] == ["large", "a", "b", "small"]


def test_a_full_disk_is_said_with_what_is_missing() -> None:
    candidate = Candidate("team/x", DUE, 4 * GB, 100)
    assert Ledger().shortage(candidate, Disk(100 * GB, 7 * GB + 1)) is None
    said = Ledger().shortage(candidate, Disk(100 * GB, 6 * GB))
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
    candidate = Candidate("team/x", DUE, 1, 5000)
    assert Ledger().shortage(candidate, Disk(100 * GB, 50 * GB, 10_000, 9_000)) is None
    assert "5,000 files, and 5,500 inodes" in (
        Ledger().shortage(candidate, Disk(100 * GB, 50 * GB, 10_000, 5_500)) or ""
    )

from __future__ import annotations

from hgfleet.storage.upgrade import Outcome, table

TODAY = frozenset(
    {
        *("dotencode", "fncache", "generaldelta", "revlog-compression-zstd"),
        *("revlogv1", "share-safe", "sparserevlog", "store"),
    }
)
OLD = frozenset({"dotencode", "fncache", "revlogv1", "store"})


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

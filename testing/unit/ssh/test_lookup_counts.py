"""Counts of key lookups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core import counters
from hgfleet.ssh.keys import authorized_keys, lookup_counts
from hgfleet.ssh.keys.lookup_counts import FILE, REASONS, Lookups

if TYPE_CHECKING:
    from pathlib import Path


def test_lookups_are_counted_by_their_reason(tmp_path: Path) -> None:
    for reason, seconds in (("ok", 0.003), ("ok", 0.004), ("unknown", 0.2), ("unavailable", 9.0)):
        assert lookup_counts.add(reason, seconds, str(tmp_path)) is None
    lookups = Lookups(counters.parse((tmp_path / FILE).read_bytes()))
    assert {reason: count for reason, count in lookups.by_reason.items() if count} == {
        "ok": 2,
        "unknown": 1,
        "unavailable": 1,
    }
    assert lookups.count == 4
    assert lookups.seconds == 0.003 + 0.004 + 0.2 + 9.0
    assert dict(lookups.buckets)[0.002] == 0
    assert dict(lookups.buckets)[0.005] == 2
    assert dict(lookups.buckets)[5.0] == 3


def test_a_word_that_is_no_reason_is_a_defect_of_the_program() -> None:
    assert lookup_counts.counts('x"} 1', 0.1)["crash"] == 1


def test_the_manual_has_each_reason() -> None:
    manual = authorized_keys.__doc__ or ""
    named = [
        reason.strip()
        for line in manual.splitlines()
        if line.startswith("| ") and not line.startswith(("| reason", "| ---"))
        for reason in line.split("|")[1].split(",")
    ]
    assert sorted(named) == sorted(REASONS)


def test_a_lookup_goes_on_where_it_cannot_be_counted(tmp_path: Path) -> None:
    problem = lookup_counts.add("ok", 0.1, str(tmp_path / "none"))
    assert problem is not None
    assert "No such file" in problem

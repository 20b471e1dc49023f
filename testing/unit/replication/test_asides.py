"""Repositories that a mirror has set aside: since when, and until when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.registry.dynamic.missing import Missing
from hgfleet.replication.mirror import asides
from hgfleet.replication.mirror.asides import DAY_S, Aside

if TYPE_CHECKING:
    from pathlib import Path

A, B = "1" * 32, "2" * 32
ONE, OTHER = f"aside-{A}", f"aside-{B}-2"


def test_a_folder_is_noted_from_the_first_look_until_it_leaves() -> None:
    first = asides.updated({}, [ONE], {ONE: "people/bob/x"}, 100.0)
    assert first == {ONE: Aside("people/bob/x", 100.0)}
    both = asides.updated(first, [ONE, "aside-unknown"], {}, 200.0)
    assert both == first | {"aside-unknown": Aside("aside-unknown", 200.0)}
    assert asides.updated(both, [], {}, 300.0) == {}


def test_a_time_from_the_future_begins_anew() -> None:
    noted = {ONE: Aside("people/bob/x", 500.0)}
    assert asides.updated(noted, [ONE], {}, 100.0) == {ONE: Aside("people/bob/x", 100.0)}


@pytest.mark.parametrize(("days", "names"), [(14, [ONE]), (15, []), (0, [])])
def test_a_folder_is_kept_for_its_days_and_one_more(days: int, names: list[str]) -> None:
    noted = {ONE: Aside("x", 1.0), OTHER: Aside("y", 10 * DAY_S)}
    due = asides.looked_at(noted, days, 14 * DAY_S + 1)
    assert [name for name, aside in due.items() if aside.due] == names
    assert asides.expired(due, days, 14 * DAY_S + 1) == []
    assert asides.expired(due, days, 15 * DAY_S) == []
    assert asides.looked_at(due, days, 14.5 * DAY_S) == due
    assert asides.expired(due, days, 15 * DAY_S + 1) == names


def test_a_clock_that_is_ahead_for_a_while_ends_no_time() -> None:
    noted = {ONE: Aside("x", 1.0)}
    ahead = asides.looked_at(noted, 14, 20 * DAY_S)
    assert ahead[ONE].due == 20 * DAY_S
    # The clock is right again, and then ahead again after another boot.
    right = asides.looked_at(ahead, 14, 5 * DAY_S)
    assert right == noted
    again = asides.looked_at(right, 14, 40 * DAY_S)
    assert asides.expired(again, 14, 40 * DAY_S) == []
    # The setting has more days than before, or none.
    for days in (0, 30):
        assert asides.looked_at(ahead, days, 20 * DAY_S) == noted


def test_a_repository_that_operators_took_from_the_inventory_alarms_nobody() -> None:
    inventory = Missing(A, "team/tool", "2026-11-21T00:00:00Z")
    persons = Missing(B, "people/bob/x", "2026-11-21T00:00:00Z", {"owner": "bob"})
    lost = {A: inventory, B: persons}
    names = [ONE, OTHER, "aside-unknown"]
    assert asides.retired(names, lost, ()) == {ONE}
    # It is still declared: another repository is at its path.
    assert asides.retired(names, lost, {"team/tool"}) == set()


def test_a_folder_is_named_with_the_way_back() -> None:
    since = 1_795_440_000.0
    named = asides.sentences({ONE: Aside("people/bob/x", since)}, 14)[ONE]
    day = time.strftime("%Y-%m-%d", time.gmtime(since + 14 * DAY_S))
    assert named[0] == "people/bob/x"
    assert f"deleted after {day}; `hgfleet registry bring-back {A}` on the primary" in named[1]
    other = asides.sentences({"aside-unknown": Aside("x", since)}, 0)["aside-unknown"][1]
    assert other.endswith(".replication/aside-unknown, and kept")


def test_notes_survive_in_their_file(tmp_path: Path) -> None:
    (tmp_path / ".replication").mkdir()
    (tmp_path / f".replication/{ONE}").mkdir()
    (tmp_path / ".replication/old-x").mkdir()
    noted = {ONE: Aside("people/bob/x", 100.0, 200.0)}
    assert asides.load(tmp_path) == {}
    asides.save(tmp_path, noted)
    assert (asides.load(tmp_path), asides.names(tmp_path)) == (noted, [ONE])
    # As the release before wrote it.
    (tmp_path / ".replication/aside.json").write_text('{"x": {"path": "y", "since": 1}}')
    assert asides.load(tmp_path) == {"x": Aside("y", 1.0)}
    (tmp_path / ".replication/aside.json").write_text('{"x": 5}')
    assert asides.load(tmp_path) == {}
    asides.save(tmp_path, {})
    assert not (tmp_path / ".replication/aside.json").exists()

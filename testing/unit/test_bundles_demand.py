from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hgfleet.bundles import demand
from hgfleet.bundles.demand import Demand, collect

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def line(*, full: bool = True, hours: float = 1, **changed: object) -> str:
    when = (NOW - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")
    entry = {
        "time": when,
        "repository": "team/project",
        "command": "getbundle",
        "changesets": True,
        "full": full,
        "duration": 1.5,
    }
    return json.dumps({**entry, **changed}, separators=(",", ":"))


def test_clones_and_pulls_are_counted_by_repository() -> None:
    lines = [line(), line(full=False), line(full=False), line(repository="other", duration=2)]
    assert collect(lines, NOW - timedelta(days=1)) == {
        "team/project": Demand(clones=1, pulls=2, seconds=4.5),
        "other": Demand(clones=1, seconds=2),
    }


def test_what_waited_for_its_turn_cost_nothing_meanwhile() -> None:
    lines = [line(duration=100, waited=98.5)]
    assert collect(lines, NOW - timedelta(days=1)) == {"team/project": Demand(1, 0, 1.5)}


def test_what_is_older_or_asks_for_no_changesets_does_not_count() -> None:
    lines = [line(hours=25), line(changesets=False), line(command="batch", details="getbundle")]
    assert collect(lines, NOW - timedelta(days=1)) == {}


def test_lines_that_are_something_else_are_skipped() -> None:
    lines = [
        "",
        "\x00",
        '{"command":"getbundle"',
        '["getbundle"]',
        line(duration="long"),
        line(time="yesterday"),
        line(time="2026-11-20T11:00:00"),
        line(agent="getbundle", repository="fine"),
    ]
    assert [*collect(lines, NOW - timedelta(days=1))] == ["fine"]


def test_no_log_is_no_demand(tmp_path: Path) -> None:
    assert demand.read(tmp_path / "none", NOW) == {}
    assert demand.read(None, NOW) == {}
    log = tmp_path / "access.log"
    log.write_text(line() + "\n")
    assert demand.read(log, NOW)["team/project"].clones == 1

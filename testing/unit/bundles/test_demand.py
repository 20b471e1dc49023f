from __future__ import annotations

import gzip
import io
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import demand
from hgfleet.bundles.decide.demand import Demand, collect
from hgfleet.bundles.decide.plan import Refresh
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.steps.job import Job, Options
from hgfleet.core.report import Report
from hgfleet.objectstore.settings import Store

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
    assert demand.read([tmp_path / "none", tmp_path / "nowhere/none"], NOW) == {}
    log = tmp_path / "access.log"
    log.write_text(line() + "\n")
    assert demand.read([log], NOW)["team/project"].clones == 1


def test_requests_over_https_and_over_ssh_are_added_up(tmp_path: Path) -> None:
    web, ssh = tmp_path / "access.log", tmp_path / "changesets.log"
    web.write_text(line() + "\n")
    ssh.write_text(line(full=False, duration=0.25) + "\n")
    assert demand.read([web, ssh], NOW) == {"team/project": Demand(1, 1, 1.75)}


def test_what_was_rotated_within_the_day_counts_and_older_files_are_not_opened(
    tmp_path: Path,
) -> None:
    log = tmp_path / "access.log"
    log.write_text(line(hours=1) + "\n")
    rotated = tmp_path / "access.log-20261120-1795000000"
    rotated.write_text(line(hours=5) + "\n" + line(hours=30) + "\n")
    packed = tmp_path / "access.log-20261119-1794900000.gz"
    packed.write_bytes(gzip.compress(line(hours=20).encode() + b"\n"))
    old = tmp_path / "access.log-20261118-1794800000.gz"
    old.write_bytes(packed.read_bytes())
    (tmp_path / "access.log.bak").write_text(line() + "\n")
    for file, hours in ((log, 0), (rotated, 4), (packed, 19), (old, 25)):
        when = (NOW - timedelta(hours=hours)).timestamp()
        os.utime(file, (when, when))
    assert demand.current(log, NOW - demand.WINDOW) == [log, rotated, packed]
    assert demand.read([log], NOW) == {"team/project": Demand(clones=3, seconds=4.5)}


def test_a_damaged_or_huge_file_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "access.log"
    log.write_text(line() + "\n")
    bomb = gzip.compress(b"\0" * 50_000_000)
    for name, content in (("1.gz", b"no gzip"), ("2.gz", bomb[:-100]), ("3.gz", bomb)):
        file = tmp_path / f"access.log-{name}"
        file.write_bytes(content)
        os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    monkeypatch.setattr(demand, "MAX_READ", 1_000_000)
    read = sum(len(log_line) for log_line in demand._lines([log], NOW - demand.WINDOW))
    assert read < 2_000_000
    assert demand.read([log], NOW)["team/project"].clones == 1


def test_all_threads_of_a_run_read_the_logs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cached properties have no lock since Python 3.12, so each thread would read for itself."""
    threads, reads, inside = 6, [], threading.Event()
    everyone = threading.Barrier(threads)
    config = Config(
        stores=(Store("main", "http://unused", "bundles", "http://unused/bundles"),),
        refresh=Refresh(share=0.01, age=timedelta(days=7)),
        retention=timedelta(days=7),
        access_log=tmp_path / "access.log",
        scratch=tmp_path,
    )
    job = Job(config, Options(now=NOW), Report("text", io.StringIO()), {})

    def read(*_arguments: object) -> dict[str, Demand]:
        reads.append(threading.get_ident())
        # The other threads have asked by then, or do so in this time.
        inside.wait(0.2)
        return {}

    monkeypatch.setattr(demand, "read", read)

    def ask(_number: int) -> object:
        everyone.wait()
        return job.demand

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(ask, range(threads)))
    assert len(reads) == 1
    assert all(answer is answers[0] for answer in answers)

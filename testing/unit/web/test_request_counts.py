"""Counts of requests, and their way to the file of all workers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hgfleet.core import counters
from hgfleet.hg.clone_counts import Answers
from hgfleet.web.http import request_counts
from hgfleet.web.http.request_counts import FILE, REFUSALS, Counting, Requests, counts, kind_of

WEB = Path(__file__).resolve().parents[3] / "hgfleet/web"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("getbundle", "changesets"),
        ("stream_out", "changesets"),
        ("clonebundles_manifest", "manifest"),
        ("batch", "wire"),
        ("unbundle", "wire"),
        ("archive", "archive"),
        ("api", "api"),
        ("json-log", "api"),
        ("log", "page"),
        ("any-word-of-a-client", "page"),
        (None, "other"),
    ],
)
def test_kinds_of_requests_are_few(command: str | None, kind: str) -> None:
    assert kind_of(command) == kind
    assert kind in request_counts.KINDS


def test_requests_are_counted_by_kind_status_time_and_cache() -> None:
    total: dict[str, float] = {}
    for entry, status, size, seconds in (
        ({"command": "log", "cache": "hit"}, 200, 10, 0.0005),
        ({"command": "log", "cache": "miss"}, 200, 10, 0.2),
        ({"command": "heads", "cache": "off", "refused": "limit (19 s of cpu)"}, 503, 5, 2.0),
        ({"cache": "off"}, 404, 7, 0.001),
        ({"command": "healthz"}, 200, 99, 0.1),
        (
            {"command": "getbundle", "answer": "clone", "source": "live", "cache": "off"},
            200,
            1000,
            400.0,
        ),
    ):
        for name, amount in counts(entry, status, size, seconds).items():
            total[name] = total.get(name, 0) + amount
    requests = Requests(total)
    assert {kind: count for kind, count in requests.counts.items() if count} == {
        ("page", "2xx"): 2,
        ("wire", "5xx"): 1,
        ("other", "4xx"): 1,
        ("changesets", "2xx"): 1,
    }
    assert requests.cache == {"hit": 1, "miss": 1}
    assert {reason for reason, count in requests.refused.items() if count} == {"limit"}
    buckets, count, seconds = requests.times["page"]
    assert (dict(buckets)[0.001], dict(buckets)[0.25], count, seconds) == (1, 2, 2, 0.2005)
    assert dict(requests.times["changesets"][0])[300.0] == 0
    assert requests.bytes["changesets"] == 1000
    clones = Answers(total)
    assert clones.counts["clone", "live"] == 1
    assert clones.bytes["clone", "live"] == 1000


def test_each_reason_of_the_log_has_its_count() -> None:
    named: set[str] = set()
    for file in WEB.rglob("*.py"):
        for line in file.read_text("utf-8").splitlines():
            if 'entry["refused"] = ' in line:
                named.update(re.findall(r'"([a-z]+)(?: \(\{\w+\}\))?"', line.partition(" = ")[2]))
    assert named == set(REFUSALS)


def test_counts_of_a_process_reach_the_file_together(tmp_path: Path) -> None:
    said: list[str] = []
    counting = Counting(tmp_path, said.append)
    counting.add({"page 2xx": 1})
    counting.add({"page 2xx": 1, "cache hit": 1})
    assert not list(tmp_path.iterdir())
    counting.flush()
    counting.flush()
    assert counters.parse((tmp_path / FILE).read_bytes()) == {"page 2xx": 2, "cache hit": 1}
    (tmp_path / FILE).unlink()
    tmp_path.rmdir()
    counting.add({"page 2xx": 1})
    counting.flush()
    assert len(said) == 1
    assert "not counted" in said[0]


def test_counts_reach_the_file_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_counts, "FLUSH_S", 0.01)
    counting = Counting(tmp_path, print)
    counting.add({"page 2xx": 1})
    timer = counting._timer
    assert timer is not None
    timer.join(30)
    assert counters.parse((tmp_path / FILE).read_bytes()) == {"page 2xx": 1}


def test_a_process_that_was_forked_does_not_count_again(tmp_path: Path) -> None:
    counting = Counting(tmp_path, print)
    counting.add({"page 2xx": 1})
    pid = os.fork()
    if not pid:
        counting.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not list(tmp_path.iterdir())


def test_a_process_without_a_folder_counts_nothing() -> None:
    counting = Counting(None, print)
    counting.add({"page 2xx": 1})
    counting.flush()
